// Package backfill runs the long part of a migration in the background, in steps, while nodes work.
//
// A migration in package db runs at the start of a node, in one transaction, and must take little time. If it adds a
// column or a table whose values follow from millions of rows, a backfill fills them afterwards. The code that needs the
// values works without them until [Done] returns true; the migration that removes what they replace comes in a later
// release.
//
// # Invariants
//
// A step and the place that it reached are one transaction. A killed backfill therefore continues where it was, and no
// step has its effect twice. If two nodes run the same step, the second transaction finds that the place has changed and
// fails.
//
// # Failures
//
// [Run] returns the first error. The next call continues.
//
// # Out of scope
//
// The package does not decide how many rows a step changes: a step should take a few milliseconds.
package backfill

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Backfill fills new columns or tables from the rows that exist.
type Backfill struct {
	Name string // never changes and is never used again

	// Step handles the rows after the given place, which is "" at the beginning, and returns the place that it reached. It
	// returns "" after the last row.
	Step func(ctx context.Context, tx *db.Tx, place string) (next string, err error)
}

const (
	prefix = "backfill " // of the facts that store how far backfills are
	done   = "done"
	at     = "at " // before a place

	pause = 5 * time.Millisecond // between steps, so that other transactions get their turn
)

var errMoved = errors.New("another node runs the same backfill")

// Run runs the backfills that are not complete, one after another, until all of them are.
func Run(ctx context.Context, d *db.DB, all ...Backfill) error {
	for _, b := range all {
		for {
			state, err := d.Fact(ctx, prefix+b.Name)
			if err != nil {
				return err
			}
			if state == done {
				break
			}
			if err := b.step(ctx, d, state); err != nil {
				return fmt.Errorf("backfill %s: %w", b.Name, err)
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	}
	return nil
}

// step runs one step, unless the place has changed.
func (b Backfill) step(ctx context.Context, d *db.DB, state string) error {
	return d.Update(ctx, func(tx *db.Tx) error {
		if err := tx.Serialize(ctx, prefix+b.Name); err != nil {
			return err
		}
		now, err := db.FactIn(ctx, tx.Reader, prefix+b.Name)
		if err != nil {
			return err
		}
		if now != state {
			return errMoved
		}
		next, err := b.Step(ctx, tx, strings.TrimPrefix(state, at))
		if err != nil {
			return err
		}
		reached := done
		if next != "" {
			reached = at + next
		}
		db.SetFact(ctx, tx, prefix+b.Name, reached)
		return nil
	})
}

// Done reports whether a backfill is complete.
func Done(ctx context.Context, d *db.DB, name string) (bool, error) {
	state, err := d.Fact(ctx, prefix+name)
	return state == done, err
}
