package tlspolicies

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

const (
	refreshBatch   = 100
	refreshWorkers = 8
	refreshTime    = 8 * time.Minute // of one run, which must end before the lease of its job
)

// Refresh fetches the cached policies again that were fetched a day ago. It deletes those that no email has used for
// 180 days, those that have expired and cannot be had any more, and the entries of domains whose policy could never be
// had.
func (s *Service) Refresh(ctx context.Context) error {
	for began := time.Now(); time.Since(began) < refreshTime; {
		due, err := s.due(ctx, s.c.Now(), refreshBatch)
		if err != nil || len(due) == 0 {
			return err
		}
		group, within := errgroup.WithContext(ctx)
		group.SetLimit(refreshWorkers)
		for _, e := range due {
			group.Go(func() error { return s.refresh(within, e) })
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// refresh fetches the policy of an entry again, or deletes the entry. It first postpones the next refresh, so that the
// entry is not due any more, whatever happens.
func (s *Service) refresh(ctx context.Context, e *Entry) error {
	now := s.c.Now()
	next := now.Add(refreshRetry)
	if ok, err := s.postpone(ctx, e.Domain, e.RefreshAt, next); err != nil || !ok {
		return err
	}
	e.RefreshAt = next
	if e.Policy.Mode == "" || now.Sub(e.UsedAt) >= unusedFor {
		return s.removeUnchanged(ctx, e)
	}
	r := lookUp(ctx, s.p.DNS, e.Domain)
	reason := r.reason
	if r.id != "" {
		if e = s.renew(ctx, e.Domain, r, e, now.Add(-time.Microsecond)); e == nil {
			return nil // the operator has deleted it
		}
		reason = e.Reason
	}
	switch {
	case reason == "" || ctx.Err() != nil:
	case !e.Valid(s.c.Now()):
		return s.removeUnchanged(ctx, e)
	case e.Policy.Mode != mtasts.None:
		s.p.Log.Warn("a TLS policy cannot be refreshed; the cached one applies until it expires", "domain", e.Domain,
			"expires", e.ExpiresAt, "reason", reason)
	}
	return ctx.Err()
}
