package retention_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// A partition that cannot be dropped, such as one with very many scheduled emails, does not keep the later ones from
// being dropped.
func TestLaterPartitionsAreDropped(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.PostgresURL(t))
	dbtest.DropPartitions(t, d)
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	parts := partitions.New(d, "day", log)
	if err := parts.MakeSince(ctx, d.Now().Add(-5*day)); err != nil {
		t.Fatal(err)
	}
	before := d.Now().Add(-day)
	closed, err := parts.Closed(ctx, partitions.Emails, before)
	if err != nil || len(closed) != 4 {
		t.Fatalf("closed are %v, %v", closed, err)
	}
	failed := errors.New("too many emails are not settled")
	keep := func(*db.Tx, string, string) ([]partitions.Kept, error) { return nil, nil }
	s := retention.New(teams.Retention{}, testnode.Bare(t, d, testnode.Options{}).Teams, d.Now).DropBy(
		retention.Drops{Partitions: parts, Log: log, Families: []retention.Drop{{Family: partitions.Emails,
			Longest: retention.Same(day), Prepare: func(_ context.Context, span partitions.Span) (
				func(*db.Tx, string, string) ([]partitions.Kept, error), func(context.Context) error, error) {
				if span == closed[1] {
					return nil, nil, failed
				}
				return keep, func(context.Context) error { return nil }, nil
			}}}})
	if err := s.Partition(ctx); !errors.Is(err, failed) {
		t.Errorf("the error is %v", err)
	}
	left, err := parts.Closed(ctx, partitions.Emails, before)
	if err != nil || len(left) != 1 || left[0] != closed[1] {
		t.Errorf("%v are left, %v", left, err)
	}
}
