package dailyreports

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/visible"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	sendBatch  = 100
	dropAfter  = 2 * retryFor     // after a report became due
	sendTime   = 10 * time.Minute // of one run, which must end before the lease of its job
	recordTime = 10 * time.Second // for storing an outcome after the run was stopped
)

// Sender sends reports of a kind. Rests and Bounced are either both set or both nil.
type Sender struct {
	Kind    string // name of the reports in the log, such as "TLS"
	Table   Table
	Workers int  // number of reports that are sent at the same time
	Off     bool // no reports are sent, and those that no other node sends are dropped

	DB  *db.DB
	Log *slog.Logger
	Now func() time.Time

	// Targets returns the targets that get a report, at its first try. A report without targets is dropped. After an
	// error, the next try calls Targets again; Targets logs its errors.
	Targets func(ctx context.Context, x *Report) ([]string, error)
	// Prepare writes a report, and returns the function that sends it to a target. If the report counts nothing, send
	// is nil, and the report is dropped. Errors of Prepare may wrap ErrUnwritable, and those of send each error of this
	// package.
	Prepare func(ctx context.Context, x *Report) (send func(ctx context.Context, to string) error, err error)
	// Rests reports whether a target gets no report, because earlier ones bounced.
	Rests func(ctx context.Context, to string) (bool, error)
	// Bounced stores that a report bounced or, if bounce is false, that it arrived.
	Bounced func(ctx context.Context, to string, bounce bool) error
}

// Send sends the reports that are due. One node at a time should call it.
func (s *Sender) Send(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sendTime)
	defer cancel()
	if s.Off {
		return s.dropOld(ctx)
	}
	for {
		due, err := s.due(ctx, s.Now())
		if err != nil || len(due) == 0 {
			return err
		}
		var mu sync.Mutex
		var ended []*Report
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(s.Workers)
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
		err = errors.Join(err, s.remove(after, ended))
		done()
		if err != nil || ctx.Err() != nil {
			return err
		}
	}
}

// dropOld removes the reports that no node has sent in time. A node whose reports are off must leave the others to
// nodes that send reports.
func (s *Sender) dropOld(ctx context.Context) error {
	for {
		old, err := s.due(ctx, s.Now().Add(-dropAfter))
		if err != nil || len(old) == 0 {
			return err
		}
		if err := s.remove(ctx, old); err != nil {
			return err
		}
	}
}

// try sends a report to each of its targets that still waits for it. If over is true, the report is finished and its
// rows can be deleted.
func (s *Sender) try(ctx context.Context, x *Report) (over bool, err error) {
	now := s.Now()
	switch {
	case ctx.Err() != nil:
		return false, nil
	case x.expiresAt > 0 && db.Micros(now) >= x.expiresAt:
		s.logExpiry(x)
		return true, nil
	case x.expiresAt == 0:
		x.expiresAt = db.Micros(now.Add(retryFor))
	}
	next := now.Add(retryAfter[min(int(x.tries), len(retryAfter)-1)])
	if end := db.Time(x.expiresAt); next.After(end) {
		next = end
	}
	x.tries++
	if x.targets == nil {
		all, err := s.Targets(ctx, x)
		if err != nil {
			_, err = s.save(ctx, x, next)
			return false, err
		}
		for _, to := range all {
			x.targets = append(x.targets, target{To: to})
		}
	}
	if waiting, err := s.settle(ctx, x); err != nil || !waiting {
		return err == nil, err
	}
	send, err := s.Prepare(ctx, x)
	if errors.Is(err, ErrUnwritable) {
		s.Log.Error("a "+s.Kind+" report is dropped", "domain", x.Domain, "error", err)
		return true, nil
	}
	if err != nil || send == nil {
		return err == nil, err
	}
	return s.sendAll(ctx, x, send, next)
}

// settle settles the targets that must not get the report, and reports whether other targets wait for it.
func (s *Sender) settle(ctx context.Context, x *Report) (waiting bool, err error) {
	for i := range x.targets {
		t := &x.targets[i]
		if t.State == trying {
			// The node that sent the report was killed. The target may have the report, and must not get it twice.
			s.Log.Warn("a "+s.Kind+" report may be lost, because the node that sent it was killed", "domain", x.Domain,
				"target", visible.Show(t.To))
			t.State = settled
		}
		if t.State == settled {
			continue
		}
		if s.Rests != nil {
			if rests, err := s.Rests(ctx, t.To); err != nil {
				return false, err
			} else if rests {
				t.State = settled
				continue
			}
		}
		waiting = true
	}
	return waiting, nil
}

// sendAll sends a report to the targets that wait, and stores each outcome.
func (s *Sender) sendAll(ctx context.Context, x *Report, send func(context.Context, string) error,
	next time.Time) (over bool, err error) {
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
		if ok, err := s.save(ctx, x, next); err != nil || !ok {
			return false, err
		}
		failed := send(ctx, t.To)
		bounce := s.Bounced != nil && errors.Is(failed, ErrBounced)
		t.State = settled
		if failed != nil {
			if !bounce && !errors.Is(failed, ErrUnknown) && !errors.Is(failed, ErrUnwritable) {
				t.State, over = "", false
			}
			s.Log.Info("a "+s.Kind+" report was not sent", "domain", x.Domain, "target", visible.Show(t.To), "again",
				t.State == "", "error", failed)
		}
		after, done := context.WithTimeout(context.WithoutCancel(ctx), recordTime)
		ok, err := s.save(after, x, next)
		if err == nil && s.Bounced != nil && (bounce || failed == nil) {
			err = s.Bounced(after, t.To, bounce)
		}
		done()
		if err != nil || !ok {
			return false, err
		}
	}
	return over, nil
}

// logExpiry logs that a report is dropped.
func (s *Sender) logExpiry(x *Report) {
	var to []string
	for _, t := range x.targets {
		if t.State != settled {
			to = append(to, visible.Show(t.To))
		}
	}
	s.Log.Warn("a "+s.Kind+" report is dropped: no try was successful within 24 hours", "domain", x.Domain, "day",
		db.Time(x.Day).Format(time.DateOnly), "targets", to)
}
