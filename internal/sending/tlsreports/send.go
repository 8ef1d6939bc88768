package tlsreports

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	sendBatch   = 100
	sendWorkers = 16
	dropAfter   = 2 * retryFor     // after a report became due
	sendTime    = 10 * time.Minute // of one run, which must end before the lease of its job
	recordTime  = 10 * time.Second // for storing an outcome after the run was stopped
)

// Send sends the reports that are due. One node at a time should call it.
func (s *Service) Send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if s.c.Off {
		return s.dropOld(ctx)
	}
	for {
		due, err := s.due(ctx, s.c.Now(), sendBatch)
		if err != nil || len(due) == 0 {
			return err
		}
		var mu sync.Mutex
		var ended []report
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(sendWorkers)
		for _, x := range due {
			group.Go(func() error {
				over, err := s.try(within, x)
				if over {
					mu.Lock()
					ended = append(ended, x)
					mu.Unlock()
				}
				return err
			})
		}
		err = group.Wait()
		// Ended reports are removed even if the run was stopped, and even if another report failed.
		after, done := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		err = errors.Join(err, s.remove(after, ended...))
		done()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// dropOld removes the reports that no node has sent in time. A node whose reports are off must leave the others to nodes
// that send reports.
func (s *Service) dropOld(ctx context.Context) error {
	for {
		old, err := s.due(ctx, s.c.Now().Add(-dropAfter), sendBatch)
		if err != nil || len(old) == 0 {
			return err
		}
		if err := s.remove(ctx, old...); err != nil {
			return err
		}
	}
}

// try tries to send a report to each of its targets that waits. If over is true, the report's rows are not needed any
// more.
func (s *Service) try(ctx context.Context, x report) (over bool, err error) {
	now := s.c.Now()
	switch {
	case ctx.Err() != nil:
		return false, nil
	case x.expiresAt > 0 && db.Micros(now) >= x.expiresAt:
		s.giveUp(x, "no try was successful within 24 hours")
		return true, nil
	}
	if x.expiresAt == 0 {
		x.expiresAt = db.Micros(now.Add(retryFor))
	}
	next := now.Add(retryAfter[min(int(x.tries), len(retryAfter)-1)])
	if end := db.Time(x.expiresAt); next.After(end) {
		next = end
	}
	x.tries++
	if x.targets == nil {
		targets, err := s.lookUp(ctx, x.domain)
		if errors.Is(err, resolve.ErrTemporary) || ctx.Err() != nil {
			_, err = s.save(ctx, &x, next)
			return false, err
		}
		if err != nil {
			return true, nil // the domain wants no reports
		}
		x.targets = targets
	}
	for i := range x.targets {
		if x.targets[i].State == trying {
			// The node that tried was killed. A second report would break the promise of one report.
			s.p.Log.Warn("a TLS report may be lost, because the node that sent it was killed", "domain", x.domain,
				"target", visible.Show(x.targets[i].To))
			x.targets[i].State = settled
		}
	}
	r, err := s.build(ctx, x)
	if err != nil || r == nil {
		return err == nil, err
	}
	return s.sendAll(ctx, x, r, next)
}

// sendAll sends a report to the targets that wait, and stores each outcome.
func (s *Service) sendAll(ctx context.Context, x report, r *tlsrpt.Report, next time.Time) (over bool, err error) {
	over = true
	for i := range x.targets {
		t := &x.targets[i]
		if t.State == settled {
			continue
		}
		if ctx.Err() != nil {
			return false, nil
		}
		t.State = trying
		if ok, err := s.save(ctx, &x, next); err != nil || !ok {
			return false, err
		}
		failed := s.sendTo(ctx, *t, x, r)
		if t.State = settled; failed != nil && !errors.Is(failed, ErrUnknown) {
			t.State, over = "", false
			s.p.Log.Info("a TLS report cannot be sent yet", "domain", x.domain, "target", visible.Show(t.To),
				"error", failed)
		}
		after, done := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		ok, err := s.save(after, &x, next)
		done()
		if err != nil || !ok {
			return false, err
		}
	}
	return over, nil
}

// giveUp logs that a report is dropped.
func (s *Service) giveUp(x report, why string) {
	var to []string
	for _, t := range x.targets {
		if t.State != settled {
			to = append(to, visible.Show(t.To))
		}
	}
	s.p.Log.Warn("a TLS report is dropped: "+why, "domain", x.domain, "day", db.Time(x.day).Format(time.DateOnly),
		"targets", to)
}

// lookUp returns the targets of a domain. An error that is not temporary means that the domain wants no reports.
func (s *Service) lookUp(ctx context.Context, domain string) ([]target, error) {
	texts, err := s.p.DNS.TXT(ctx, tlsrpt.RecordName(domain))
	if err != nil {
		return nil, fmt.Errorf("look up the TLS reporting record of %s: %w", domain, err)
	}
	record, err := tlsrpt.FindRecord(texts)
	if err != nil {
		return nil, err
	}
	var all []target
	for _, t := range record.Targets {
		all = append(all, target{To: t.String()})
	}
	return slices.Clip(all), nil
}
