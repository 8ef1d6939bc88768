package dmarcreports

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	sendBatch   = 100
	sendWorkers = 8
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
	if err := s.prune(ctx); err != nil {
		return err
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

// try sends a report to each of its targets that still waits for it. If over is true, the report is finished and its
// rows can be deleted.
func (s *Service) try(ctx context.Context, x report) (over bool, err error) {
	now := s.c.Now()
	switch {
	case ctx.Err() != nil:
		return false, nil
	case x.expiresAt > 0 && db.Micros(now) >= x.expiresAt:
		s.p.Log.Warn("a DMARC report is dropped: no try was successful within 24 hours", "domain", x.domain, "day",
			db.Time(x.day).Format(time.DateOnly))
		return true, nil
	}
	if x.expiresAt == 0 {
		if n, err := s.received(ctx, x.day); err != nil || n < minMessages {
			return err == nil, err
		}
		x.expiresAt = db.Micros(now.Add(retryFor))
	}
	next := now.Add(retryAfter[min(int(x.tries), len(retryAfter)-1)])
	if end := db.Time(x.expiresAt); next.After(end) {
		next = end
	}
	x.tries++
	if x.targets == nil {
		if x.targets, err = s.accepting(ctx, x); err != nil {
			s.p.Log.Info("the targets of a DMARC report cannot be looked up yet", "domain", x.domain, "error", err)
			_, err = s.save(ctx, &x, next)
			return false, err
		}
	}
	for i := range x.targets {
		if x.targets[i].State == trying {
			// The node that sent the report was killed. The target may have the report, and must not get it twice.
			s.p.Log.Warn("a DMARC report may be lost, because the node that sent it was killed", "domain", x.domain,
				"target", visible.Show(x.targets[i].To))
			x.targets[i].State = settled
		}
	}
	return s.sendAll(ctx, x, next)
}

// sendAll sends a report to the targets that wait, and stores each outcome.
func (s *Service) sendAll(ctx context.Context, x report, next time.Time) (over bool, err error) {
	over = true
	for i := range x.targets {
		t := &x.targets[i]
		if t.State == settled {
			continue
		}
		if ctx.Err() != nil {
			return false, nil
		}
		if rests, err := s.rests(ctx, t.To); err != nil {
			return false, err
		} else if rests {
			t.State = settled
			continue
		}
		raw, to, err := s.compose(ctx, x, t.To)
		if errors.Is(err, errUnwritable) {
			s.p.Log.Error("a DMARC report is dropped", "domain", x.domain, "target", visible.Show(t.To), "error", err)
			return true, nil
		}
		if err != nil || raw == nil {
			return err == nil, err
		}
		t.State = trying
		if ok, err := s.save(ctx, &x, next); err != nil || !ok {
			return false, err
		}
		failed := s.p.Mail(ctx, s.c.From.Addr(), to, raw)
		bounce := errors.Is(failed, ErrBounced)
		if t.State = settled; failed != nil && !bounce && !errors.Is(failed, ErrUnknown) {
			t.State, over = "", false
		}
		if failed != nil {
			s.p.Log.Info("a DMARC report was not sent", "domain", x.domain, "target", visible.Show(t.To), "again",
				t.State == "", "error", failed)
		}
		after, done := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		ok, err := s.save(after, &x, next)
		if err == nil && (bounce || failed == nil) {
			err = s.bounced(after, t.To, bounce)
		}
		done()
		if err != nil || !ok {
			return false, err
		}
	}
	return over, nil
}
