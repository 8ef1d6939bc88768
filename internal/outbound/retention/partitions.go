package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
)

const (
	dueWithin = 24 * time.Hour     // Run leaves rows to a drop that is due within this time
	overdue   = 2 * 24 * time.Hour // Run deletes rows whose partition could not be dropped for this time
	dropWait  = time.Second        // wait after the first attempt to drop a partition; it doubles each time
	dropPause = 30 * time.Second   // longest wait
)

// Drops drops partitions of emails.
type Drops struct {
	Partitions *partitions.Service
	Log        *slog.Logger

	// Prepare examines a partition before it is dropped. It returns the functions that are called in the transaction that
	// drops the partition (see [partitions.Service.Drop]), and after its commit.
	Prepare func(ctx context.Context, span partitions.Span) (
		keep func(tx *db.Tx, from, to string) ([]partitions.Kept, error), dropped func(ctx context.Context) error, err error)
}

// DropBy makes the service drop partitions. DropBy must be called before any other method.
func (s *Service) DropBy(d Drops) *Service {
	s.drops = &d
	return s
}

// Longest returns the longest retention period of emails of any team, or 0 if a team keeps its emails forever.
func (s *Service) Longest(ctx context.Context) (longest time.Duration, err error) {
	first := true
	for after := ""; ; {
		some, err := s.teams.Retentions(ctx, after, teamsPerQuery)
		if err != nil {
			return 0, fmt.Errorf("read the longest retention of any team: %w", err)
		}
		for _, team := range some {
			own := team.Effective(s.most).Emails
			if own == 0 {
				return 0, nil
			}
			longest, after = max(longest, own), team.TeamID
			first = false
		}
		if len(some) == 0 {
			break
		}
	}
	if first {
		longest = s.most.Emails
	}
	return longest, nil
}

// Partition makes the partitions of the next days, drops those that have expired, and empties the default partitions.
// Partition returns the errors of all these steps.
func (s *Service) Partition(ctx context.Context) error {
	if s.drops == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, runTime)
	defer cancel()
	failed := s.drops.Partitions.Make(ctx)
	longest, err := s.Longest(ctx)
	if err != nil {
		return errors.Join(failed, err)
	}
	var since time.Time
	if longest > 0 {
		since = s.now().Add(-longest)
		failed = errors.Join(failed, s.dropBefore(ctx, since))
	}
	return errors.Join(failed, s.drops.Partitions.Empty(ctx, since))
}

// dropBefore drops all partitions that end at or before the given time, oldest first. A partition that cannot be
// dropped does not keep the later ones from being dropped, unless the time of ctx is over.
func (s *Service) dropBefore(ctx context.Context, before time.Time) error {
	closed, failed := s.drops.Partitions.Closed(ctx, partitions.Emails, before)
	for _, span := range closed {
		if ctx.Err() != nil {
			break
		}
		failed = errors.Join(failed, s.drop(ctx, span))
	}
	return failed
}

// drop drops a partition. While others use the tables, drop waits and tries again.
func (s *Service) drop(ctx context.Context, span partitions.Span) error {
	began := time.Now()
	keep, dropped, err := s.drops.Prepare(ctx, span)
	if err != nil {
		return fmt.Errorf("prepare to drop the emails of %s: %w", span, err)
	}
	var n int
	keeps := func(tx *db.Tx, from, to string) ([]partitions.Kept, error) {
		kept, err := keep(tx, from, to)
		n = len(kept)
		return kept, err
	}
	prepared := time.Now()
	for wait := dropWait; ; wait = min(2*wait, dropPause) {
		tried := time.Now()
		err := s.drops.Partitions.Drop(ctx, partitions.Emails, span, keeps)
		if err == nil {
			s.drops.Log.Info("a partition of emails was dropped", "ids", span.String(), "kept", n,
				"prepared", prepared.Sub(began), "waited", tried.Sub(prepared), "took", time.Since(tried))
			return dropped(ctx)
		}
		if !db.IsLockTimeout(err) {
			return err
		}
		s.drops.Log.Debug("a partition of emails is in use, and is dropped later", "ids", span.String())
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; other transactions used the tables during all attempts", err)
		case <-time.After(wait):
		}
	}
}

// leftToDrop returns the time since which Run leaves the emails to a drop that is due, and the retention period of the
// teams for which it does so. If no drop is due, the time is far in the future.
func (s *Service) leftToDrop(ctx context.Context, now time.Time) (since time.Time, longest time.Duration, err error) {
	since = now.Add(dueWithin)
	if s.drops == nil {
		return since, 0, nil
	}
	if longest, err = s.Longest(ctx); err != nil || longest == 0 {
		return since, 0, err
	}
	closed, err := s.drops.Partitions.Closed(ctx, partitions.Emails, now.Add(dueWithin-longest))
	for _, span := range closed {
		if span.From.Before(since) && span.To.After(now.Add(-longest-overdue)) {
			since = span.From
		}
	}
	return since, longest, err
}
