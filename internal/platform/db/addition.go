package db

import (
	"context"
	"sync/atomic"
)

// WithAddition returns a context by which add runs at the end of the first [DB.Update] or [DB.UpdateTogether] that
// changes something and is committed, in its transaction: what add writes is stored if and only if that change is. It
// is for a record of who made a change. add must only queue statements; it runs again when the update does, and when an
// earlier update with the context was not committed or its outcome is unknown.
//
// A statement that was queued, or that returns rows and is no SELECT, counts as a change. A transaction without one,
// and any of [DB.UpdateApart], runs no addition.
func WithAddition(ctx context.Context, add func(ctx context.Context, tx *Tx)) context.Context {
	return context.WithValue(ctx, additionKey{}, &addition{add: add})
}

// WithoutAddition returns a context whose updates run no addition, for changes that are not what the caller asked for,
// such as those of a cache.
func WithoutAddition(ctx context.Context) context.Context {
	return context.WithValue(ctx, additionKey{}, (*addition)(nil))
}

type additionKey struct{}

type addition struct {
	add  func(ctx context.Context, tx *Tx)
	done atomic.Bool // it is on disk
}

// withAddition returns fn with the context's addition, if there is one that is not done.
func withAddition(ctx context.Context, fn func(*Tx) error) func(*Tx) error {
	a, _ := ctx.Value(additionKey{}).(*addition)
	if a == nil || a.done.Load() {
		return fn
	}
	return func(tx *Tx) error {
		before := tx.changes
		if err := fn(tx); err != nil || tx.changes == before || a.done.Load() {
			return err
		}
		a.add(ctx, tx)
		tx.AfterCommit(func() { a.done.Store(true) })
		return nil
	}
}
