package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

var (
	// ErrCrowded means that a long read did not start, because no slot became free in time.
	ErrCrowded = errors.New("too many long reads run at once")

	// ErrTooLong means that a long read was stopped because it reached its time limit.
	ErrTooLong = errors.New("a long read was ended because its time was over")
)

// longTime limits both a long read's wait for a slot and the read itself, unless [Long] sets other limits.
const longTime = 5 * time.Second

// Long specifies the owner and the time limits of a long read.
type Long struct {
	Owner string        // for example a team; slots are shared fairly among owners
	Wait  time.Duration // maximum wait for a slot; 0 means 5 seconds
	Time  time.Duration // maximum duration of the read after the wait; 0 means 5 seconds
}

// ReadLong runs fn, which may read very many rows. Long reads have separate slots: half as many as SQLite has readers,
// or a quarter of the connections to PostgreSQL. Because of these limits, reads other than long reads always find a
// free connection. Slots are shared fairly among owners, and a single owner gets at most half of the slots, rounded up.
//
// The function fn must use the context and the Reader that it receives, and must not start another long read. When the
// time limit is reached, the running statement is also canceled on the server. In a long read, a query returns its
// first row only after the database has found all rows. The rows must be closed before the next query in the long read.
//
// If no slot becomes free in time, or the read takes too long, the error is an Unavailable fault that wraps
// [ErrCrowded] or [ErrTooLong].
func (d *DB) ReadLong(ctx context.Context, l Long, fn func(ctx context.Context, r Reader) error) error {
	waiting, cancel := context.WithTimeout(ctx, cmp.Or(l.Wait, longTime))
	err := d.long.Acquire(waiting, l.Owner)
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a place to read: %w", ctx.Err())
		}
		return fault.New(fault.Unavailable, "",
			"Too many requests that read very much run at present. Try again in a moment.").Because(ErrCrowded)
	}
	defer d.long.Release(l.Owner)
	limit := cmp.Or(l.Time, longTime)
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = d.e.readLong(limited, func(q querier) error { return fn(limited, Reader{q}) })
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		return fault.New(fault.Unavailable, "", "This took more than %s and was ended. Ask for less, or try again later.",
			limit).Because(fmt.Errorf("%w: %w", ErrTooLong, err))
	}
	return err
}

// newLong returns the slots that long reads share.
func newLong(places int) *fairshare.Turns {
	places = max(places, 1)
	return fairshare.NewTurns(places, places/2)
}
