package db

import (
	"context"
	"sync/atomic"
)

// WithAddition returns a context that adds writes, such as an audit entry, to a transaction that changes data. The add
// function runs at the end of the first [DB.Update] or [DB.UpdateTogether] call that uses this context, changes data
// and commits. The add function runs in the same transaction as the change, so its writes are stored if and only if the
// change is stored. The add function must only queue statements. The add function runs again if the update runs again.
// It also runs again in a later update with the same context if no earlier update was certainly committed.
//
// Queued statements count as changes, and so do statements that return rows, except SELECTs. Transactions without
// changes and [DB.UpdateApart] transactions do not run the addition.
func WithAddition(ctx context.Context, add func(ctx context.Context, tx *Tx)) context.Context {
	return context.WithValue(ctx, additionKey{}, &addition{add: add})
}

// WithFurtherAddition returns a context whose addition is the one that ctx has, if any, followed by the add function.
// See [WithAddition].
func WithFurtherAddition(ctx context.Context, add func(ctx context.Context, tx *Tx)) context.Context {
	before, _ := ctx.Value(additionKey{}).(*addition)
	if before == nil {
		return WithAddition(ctx, add)
	}
	return WithAddition(ctx, func(ctx context.Context, tx *Tx) {
		before.add(ctx, tx)
		add(ctx, tx)
	})
}

// WithoutAddition returns a context whose updates do not run an addition and are not noted in [Commits]. It is for
// changes that the caller did not ask for, such as cache updates.
func WithoutAddition(ctx context.Context) context.Context {
	return context.WithValue(context.WithValue(ctx, additionKey{}, (*addition)(nil)), commitsKey{}, (*Commits)(nil))
}

// Commits notes whether changes were committed that used a context of [WithCommits].
type Commits struct{ any atomic.Bool }

// Any reports whether a change was committed. It is safe for concurrent use.
func (c *Commits) Any() bool { return c.any.Load() }

// WithCommits returns a context that notes in the result when a [DB.Update] or [DB.UpdateTogether] call with this
// context commits a change. The caller of several updates can thus say, after one has failed, whether an earlier one is
// stored.
func WithCommits(ctx context.Context) (context.Context, *Commits) {
	c := &Commits{}
	return context.WithValue(ctx, commitsKey{}, c), c
}

type (
	additionKey struct{}
	commitsKey  struct{}
)

type addition struct {
	add  func(ctx context.Context, tx *Tx)
	done atomic.Bool // whether the addition's transaction was committed
}

// withAddition returns a function that runs fn and then the context's pending addition, if any. If the function changes
// data, its commit is noted in the context's [Commits].
func withAddition(ctx context.Context, fn func(*Tx) error) func(*Tx) error {
	a, _ := ctx.Value(additionKey{}).(*addition)
	c, _ := ctx.Value(commitsKey{}).(*Commits)
	if c == nil && (a == nil || a.done.Load()) {
		return fn
	}
	return func(tx *Tx) error {
		before := tx.changes
		if err := fn(tx); err != nil || tx.changes == before {
			return err
		}
		if c != nil {
			tx.AfterCommit(func() { c.any.Store(true) })
		}
		if a != nil && !a.done.Load() {
			a.add(ctx, tx)
			tx.AfterCommit(func() { a.done.Store(true) })
		}
		return nil
	}
}
