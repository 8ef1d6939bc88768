package partitions

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Closed returns the spans of a family that end at or before the given time, oldest first. Every table of the family
// has a partition of exactly this span.
func (s *Service) Closed(ctx context.Context, f Family, before time.Time) (closed []Span, err error) {
	if s.d.Alone() {
		return nil, nil
	}
	all, err := list(ctx, s.d.Reader, false)
	if err != nil {
		return nil, fmt.Errorf("list the partitions of %s: %w", f.Name, err)
	}
	tables := map[Span]int{}
	for _, p := range all {
		for _, t := range f.Tables {
			if t.Name == p.Table && !p.Default && !p.To.After(before) {
				tables[p.Span]++
				if tables[p.Span] == len(f.Tables) {
					closed = append(closed, p.Span)
				}
			}
		}
	}
	return closed, nil
}

// Kept names rows that are kept: all with the id in tables whose key begins with the id, and those of the owner in
// tables whose key begins with another id, such as that of the team.
type Kept struct{ Owner, ID string }

// Drop drops the partitions of a span with all their rows, except for the rows of some ids, which move to the default
// partitions. The keep function runs in the same transaction and returns these ids. Nothing is written to the
// partitions while it runs, so keep should read few rows.
//
// If another transaction uses the tables for longer than [lockTime], Drop returns an error for which
// [db.IsLockTimeout] is true, and has changed nothing. Callers try again later.
func (s *Service) Drop(ctx context.Context, f Family, span Span,
	keep func(tx *db.Tx, from, to string) (kept []Kept, err error)) error {
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		if err := alone(ctx, tx); err != nil {
			return err
		}
		names, err := namesOf(ctx, tx, f, span)
		if err != nil {
			return err
		}
		// No transaction writes to the partitions any more, so keep sees all of their rows.
		if err := lock(ctx, tx, names, "SHARE ROW EXCLUSIVE"); err != nil {
			return err
		}
		if now := tx.Now(); !span.To.Before(now) {
			return fmt.Errorf("the span has not ended, because it is %s", now)
		}
		kept, err := keep(tx, id.First(span.From), id.First(span.To))
		if err != nil {
			return err
		}
		for _, k := range kept {
			if !id.Valid(k.ID) || !id.Valid(k.Owner) {
				return fmt.Errorf("%q or its owner %q is not an id", k.ID, k.Owner)
			}
		}
		return drop(ctx, tx, f, names, kept)
	})
	if err != nil {
		return fmt.Errorf("drop the partitions of %s of %s: %w", f.Name, span, err)
	}
	return nil
}
