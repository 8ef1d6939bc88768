package db

import (
	"context"
	"errors"
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
	if err := ctx.Err(); err != nil {
		return err
	}
	p := &shared{withAddition(ctx, fn), make(chan error, 1)}
	// The transaction must not end with the context of one of its updates. Its callers wait for it, so a shutdown need
	// not.
	all := WithoutAddition(context.WithoutCancel(ctx))
	g := d.together[c]
	g.add(p, func(group []*shared) { commitShared(all, d, group) })
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

// Class is a class of updates that may share a transaction. Updates of different classes never share a transaction.
type Class int

const (
	Accepting Class = iota // updates for which a client is waiting
	Recording              // updates that record the outcome of work in progress
	classes
)

// shared is an update that waits for its transaction.
type shared struct {
	fn   func(*Tx) error
	done chan error
}

func newTogether() (all [classes]*gather[shared]) {
	for c := range all {
		all[c] = &gather[shared]{most: togetherMax, atOnce: togetherAtOnce, beside: togetherWait}
	}
	return all
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
