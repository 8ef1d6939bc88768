package tlspolicies

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

const (
	refreshBatch = 100
	// refreshWorkers is so low that deliveries find a place between the refreshes that wait for the limits.
	refreshWorkers = 4
	refreshTime    = 8 * time.Minute // of one run, which must end before the lease of its job
)

// Refresh fetches the cached policies again that were fetched a day ago. It deletes those that no email has used for
// 180 days, those that have expired and cannot be had any more, and the entries of domains whose policy could never be
// had. Before, it deletes rows until the cache is within its limits.
func (s *Service) Refresh(ctx context.Context) error {
	if err := s.prune(ctx); err != nil {
		return err
	}
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
	if e.Policy.Mode == "" && !e.Unreadable || now.Sub(e.UsedAt) >= unusedFor {
		return s.removeUnchanged(ctx, e)
	}
	r := s.lookUp(ctx, e.Domain)
	reason := r.reason
	if r.id != "" {
		renewed, err := s.renew(ctx, e.Domain, r, now.Add(-time.Microsecond))
		switch {
		case errors.Is(err, errBusy):
			reason = err.Error()
		case err != nil:
			return err
		case renewed == nil:
			return nil // the operator has deleted it
		default:
			e, reason = renewed, renewed.Reason
		}
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
