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
	// ErrCrowded means that a long read found no place within its wait, and did nothing.
	ErrCrowded = errors.New("too many long reads run at once")

	// ErrTooLong means that a long read was ended because its time was over.
	ErrTooLong = errors.New("a long read was ended because its time was over")
)

// longTime is how long a long read waits for its place, and may then take, unless [Long] says otherwise.
const longTime = 5 * time.Second

// Long says whose a long read is and how long it may take.
type Long struct {
	Owner string        // such as a team; owners take turns
	Wait  time.Duration // the longest wait for a place; 0 is 5 seconds
	Time  time.Duration // the longest that it may take once it has its place; 0 is 5 seconds
}

// ReadLong runs fn, whose reads may go through very many rows. Such reads have places of their own, half as many as
// SQLite has readers and a quarter of the connections to PostgreSQL, so that however many are asked for, other reads
// find a reader free. Owners share the places by turns, and one owner alone gets no more than half of them, rounded up.
//
// fn must use the context and the Reader that it is given, and no other long read. When the time is over, the statement
// that runs is ended on the server too. The rows of a query come after all of its work is done, and must be closed
// before the next query.
//
// When no place is free in time, or the time is over, the error is a fault of kind Unavailable that is [ErrCrowded] or
// [ErrTooLong].
func (d *DB) ReadLong(ctx context.Context, l Long, fn func(ctx context.Context, r Reader) error) error {
	waiting, cancel := context.WithTimeout(ctx, cmp.Or(l.Wait, longTime))
	err := d.long.Enter(waiting, l.Owner)
	cancel()
	if err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("wait for a place to read: %w", ctx.Err())
		}
		return fault.New(fault.Unavailable, "",
			"Too many requests that read very much run at present. Try again in a moment.").Because(ErrCrowded)
	}
	defer d.long.Leave(l.Owner)
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

// newLong returns the places of long reads.
func newLong(places int) *fairshare.Turns {
	places = max(places, 1)
	return fairshare.NewTurns(places, places/2)
}
