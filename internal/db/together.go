package db

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

const (
	// togetherMax is how many updates share a transaction at most.
	togetherMax = 16
	// togetherAtOnce is how many such transactions there are at a time. More of them share less; one alone would
	// make the round trips to a distant database wait for each other.
	togetherAtOnce = 2
	togetherTime   = time.Minute
)

// UpdateTogether is Update for the many small updates that follow from work in hand, such as outcomes. On PostgreSQL
// those that come at the same time share a transaction, and with it the wait for the disk; SQLite shares commits in
// any case. There is no timer: what came while the last commit ran goes into the next. fn may run twice, because one
// that fails must not take others with it; but when the database itself failed, all of them have that error, and when
// it is [ErrUnknown] none is run again. Its statements run until the transaction ends, whatever becomes of ctx. It
// waits for its turn as long as for the database.
func (d *DB) UpdateTogether(ctx context.Context, c Class, fn func(*Tx) error) error {
	if d.Alone() {
		return d.Update(ctx, fn)
	}
	return d.together[c].update(ctx, d, fn)
}

// Class is a class of updates. Only updates of the same class share a transaction.
type Class int

const (
	Accepting Class = iota // somebody waits for it
	Recording              // outcomes of work in hand
	classes
)

// together gathers updates. Its zero value is ready.
type together struct {
	mu      sync.Mutex
	waiting []*shared
	running int // calls of commitAll
}

type shared struct {
	fn   func(*Tx) error
	done chan error
}

func (g *together) update(ctx context.Context, d *DB, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &shared{fn, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	start := g.running < togetherAtOnce
	if start {
		g.running++
	}
	g.mu.Unlock()
	if start {
		go g.commitAll(context.WithoutCancel(ctx), d)
	}
	turn := time.NewTimer(d.wait)
	defer turn.Stop()
	select {
	case err := <-p.done:
		return err
	case <-turn.C:
	}
	if g.leave(p) {
		return unavailable("wait for a transaction", errors.New("those before took too long"))
	}
	return <-p.done
}

// leave takes an update out of those that wait. It reports false for one whose transaction has begun.
func (g *together) leave(p *shared) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, p)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// commitAll commits the updates that wait, until none does. The callers of update wait for it, so it ends before them.
func (g *together) commitAll(ctx context.Context, d *DB) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), togetherMax)
		group := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		if n == 0 {
			g.running--
		}
		g.mu.Unlock()
		if n == 0 {
			return
		}
		commitShared(ctx, d, group)
	}
}

func commitShared(ctx context.Context, d *DB, group []*shared) {
	ctx, cancel := context.WithTimeout(ctx, togetherTime)
	defer cancel()
	err := d.Update(ctx, func(tx *Tx) error {
		for _, p := range group {
			if err := p.fn(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range group {
		own := err
		if err != nil && len(group) > 1 && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
			own = d.Update(ctx, p.fn) // each for itself: one of them is at fault
			if errors.Is(own, ErrUnavailable) {
				err = own // for those that are left too
			}
		}
		p.done <- own
	}
}
