package db

import "context"

// ReadTogether runs fn, which must make only short reads. On SQLite, several of these reads share a transaction, which
// costs less than a transaction for each; fn may run in another goroutine. The rows must be closed before fn returns.
func (d *DB) ReadTogether(ctx context.Context, fn func(r Reader) error) error {
	return d.e.readTogether(ctx, func(q querier) error { return fn(Reader{q}) })
}
