package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
)

const (
	dueWithin = 24 * time.Hour     // Run leaves rows to a drop that is due within this time
	overdue   = 2 * 24 * time.Hour // Run deletes rows whose partition could not be dropped for this time
	dropWait  = time.Second        // wait after the first attempt to drop a partition; it doubles each time
	dropPause = 30 * time.Second   // longest wait
)

// Drops drops partitions.
type Drops struct {
	Partitions *partitions.Service
	Log        *slog.Logger
	Families   []Drop
}

// Drop says which partitions of a family are dropped.
type Drop struct {
	partitions.Family
	Setting string // the name of the setting of the retention period

	// Longest returns the longest retention period of any team, or 0 if a team keeps its rows forever.
	Longest func(ctx context.Context) (time.Duration, error)

	// Prepare examines a partition before it is dropped. It returns the functions that are called in the transaction that
	// drops the partition (see [partitions.Service.Drop]), and after its commit. If Prepare is nil, all rows are dropped.
	Prepare func(ctx context.Context, span partitions.Span) (
		keep func(tx *db.Tx, from, to string) ([]partitions.Kept, error), dropped func(ctx context.Context) error, err error)
}

// Same returns the function Longest for a retention period that all teams have.
func Same(period time.Duration) func(context.Context) (time.Duration, error) {
	return func(context.Context) (time.Duration, error) { return period, nil }
}

// DropBy makes the service drop partitions. DropBy must be called before any other method.
func (s *Service) DropBy(d Drops) *Service {
	s.drops = &d
	return s
}

// Drops returns the families whose partitions are dropped.
func (s *Service) Drops() []Drop {
	if s.drops == nil {
		return nil
	}
	return s.drops.Families
}

// LongestOfEmails returns the longest retention period of emails of any team, or 0 if a team keeps its emails forever.
func (s *Service) LongestOfEmails(ctx context.Context) (longest time.Duration, err error) {
	shortest, longest, err := s.teams.EmailRetentions(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the longest retention of any team: %w", err)
	}
	if shortest == 0 { // a team has no period of its own
		longest = 0
	}
	return teams.Retention{Emails: longest}.Effective(s.most).Emails, nil
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
	for i := range s.drops.Families {
		failed = errors.Join(failed, s.dropExpired(ctx, &s.drops.Families[i]))
	}
	return failed
}

// dropExpired drops the partitions of a family that have expired, and empties its default partitions.
func (s *Service) dropExpired(ctx context.Context, d *Drop) (failed error) {
	longest, err := d.Longest(ctx)
	if err != nil {
		return err
	}
	var since time.Time
	if longest > 0 {
		since = s.now().Add(-longest)
		failed = s.dropBefore(ctx, d, since)
	}
	return errors.Join(failed, s.drops.Partitions.Empty(ctx, d.Family, since))
}

// dropBefore drops all partitions of a family that end at or before the given time, oldest first. A partition that
// cannot be dropped does not keep the later ones from being dropped, unless the time of ctx is over.
func (s *Service) dropBefore(ctx context.Context, d *Drop, before time.Time) error {
	closed, failed := s.drops.Partitions.Closed(ctx, d.Family, before)
	for _, span := range closed {
		if ctx.Err() != nil {
			break
		}
		failed = errors.Join(failed, s.drop(ctx, d, span))
	}
	return failed
}

// drop drops a partition. While others use the tables, drop waits and tries again.
func (s *Service) drop(ctx context.Context, d *Drop, span partitions.Span) error {
	began := time.Now()
	keep := func(*db.Tx, string, string) ([]partitions.Kept, error) { return nil, nil }
	dropped := func(context.Context) error { return nil }
	if d.Prepare != nil {
		var err error
		if keep, dropped, err = d.Prepare(ctx, span); err != nil {
			return fmt.Errorf("prepare to drop the %s of %s: %w", d.Name, span, err)
		}
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
		err := s.drops.Partitions.Drop(ctx, d.Family, span, keeps)
		if err == nil {
			s.drops.Log.Info("a partition was dropped", "rows", d.Name, "ids", span.String(), "kept", n,
				"prepared", prepared.Sub(began), "waited", tried.Sub(prepared), "took", time.Since(tried))
			return dropped(ctx)
		}
		if !db.IsLockTimeout(err) {
			return err
		}
		s.drops.Log.Debug("a partition is in use, and is dropped later", "rows", d.Name, "ids", span.String())
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; other transactions used the tables during all attempts", err)
		case <-time.After(wait):
		}
	}
}

// left says which rows of a family Run leaves to a drop that is due: those since a time, for teams with the longest
// retention period. If no drop is due, the time is far in the future.
type left struct {
	since   time.Time
	longest time.Duration
}

// leftToDrop returns which rows Run leaves to drops, by the name of the family.
func (s *Service) leftToDrop(ctx context.Context, now time.Time) (map[string]left, error) {
	all := map[string]left{}
	for _, d := range s.Drops() {
		longest, err := d.Longest(ctx)
		if err != nil {
			return nil, err
		}
		if longest == 0 {
			continue
		}
		l := left{now.Add(dueWithin), longest}
		closed, err := s.drops.Partitions.Closed(ctx, d.Family, now.Add(dueWithin-longest))
		if err != nil {
			return nil, err
		}
		for _, span := range closed {
			if span.From.Before(l.since) && span.To.After(now.Add(-longest-overdue)) {
				l.since = span.From
			}
		}
		all[d.Name] = l
	}
	return all, nil
}
