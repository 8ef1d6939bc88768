package db

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"
)

const (
	// togetherMax is the maximum number of updates that share a transaction.
	togetherMax = 64
	// togetherAtOnce is the maximum number of shared transactions that run at a time in each class. A further one begins
	// only if updates have waited for togetherWait, because each transaction has a fixed cost. With only one transaction
	// at a time, all updates would wait for one that waits for a lock, or for a distant database.
	togetherAtOnce = 2
	togetherWait   = 5 * time.Millisecond
	togetherTime   = time.Minute
	// togetherYields is how often other goroutines may queue updates before a shared transaction begins, because each
	// transaction and each of its statements has a fixed cost.
	togetherYields = 3
)

// UpdateTogether is like Update, for many small updates such as recording delivery results. On PostgreSQL, up to 64
// simultaneous updates in class c share a transaction and its wait for the disk. Updates that arrive during a commit
// are part of the next shared transaction. It begins after that commit, or beside it if they have waited for 5 ms. On
// SQLite, UpdateTogether is the same as Update, because SQLite's updates always share commits.
//
// A failed update does not make other updates in the same transaction fail. If a shared transaction fails, each of its
// updates runs again in a separate transaction, so fn may run more than once. If the database itself failed, all
// updates return the database's error; after [ErrUnknown] no update runs again. A transaction that has begun runs to
// completion, even if ctx is canceled. An update that waits longer than Options.Patience for its turn returns
// [ErrUnavailable].
func (d *DB) UpdateTogether(ctx context.Context, c Class, fn func(*Tx) error) error {
	if d.Alone() {
		return d.Update(ctx, fn)
	}
	return d.together[c].update(ctx, d, withAddition(ctx, fn))
}

// Class is a class of updates that may share a transaction. Updates of different classes never share a transaction.
type Class int

const (
	Accepting Class = iota // updates for which a client is waiting
	Recording              // updates that record the outcome of work in progress
	classes
)

// together collects updates that may share a transaction. The zero value of together is ready to use.
type together struct {
	mu      sync.Mutex
	waiting []*shared
	running int       // calls of commitAll
	began   time.Time // when the last transaction began
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
	if g.running == 0 || time.Since(g.began) >= togetherWait {
		g.start(WithoutAddition(context.WithoutCancel(ctx)), d)
	}
	g.mu.Unlock()
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

// leave removes a waiting update. If the update's transaction has begun, leave returns false.
func (g *together) leave(p *shared) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, p)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// start begins to commit waiting updates, unless enough transactions run. The caller holds g.mu.
func (g *together) start(ctx context.Context, d *DB) {
	if len(g.waiting) > 0 && g.running < togetherAtOnce {
		g.running++
		go g.commitAll(ctx, d)
	}
}

// commitAll commits waiting updates in groups until no updates are waiting. The callers of these updates wait for
// commitAll, so a shutdown need not wait for it. The context ctx must not be the context of the update that called
// commitAll, because that context may end first.
func (g *together) commitAll(ctx context.Context, d *DB) {
	for {
		for range togetherYields {
			runtime.Gosched() // on an idle node, it returns at once
		}
		g.mu.Lock()
		n := min(len(g.waiting), togetherMax)
		group := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.began = time.Now()
		if n == 0 {
			g.running--
			g.began = time.Time{} // another transaction may hang, for which the next update must not wait
		}
		g.mu.Unlock()
		if n == 0 {
			return
		}
		// Updates that begin to wait after this time start a transaction themselves.
		slow := time.AfterFunc(togetherWait, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.start(ctx, d)
		})
		commitShared(ctx, d, group)
		slow.Stop()
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
			own = d.Update(ctx, p.fn) // one update failed, so each update runs in its own transaction
			if errors.Is(own, ErrUnavailable) {
				err = own // the remaining updates also return this error
			}
		}
		p.done <- own
	}
}
