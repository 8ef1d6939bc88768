package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// borrow returns an engine that uses d's connections, for tests that need a database. Without borrowed connections, a
// test would take twice as long, because each new PostgreSQL process first reads the catalog.
func borrow(d *DB) (*postgresDB, error) {
	owner, ok := d.e.(*postgresDB)
	if !ok {
		return nil, errors.New("only connections to PostgreSQL can be borrowed")
	}
	p := &postgresDB{pool: owner.pool, apart: owner.apart, config: owner.config, patience: owner.patience,
		opening: owner.opening, borrowed: true, parts: newParts()}
	p.clock.last.Store(owner.clock.last.Load())
	return p, nil
}

const returnTime = 10 * time.Second // time limit for work that still uses borrowed connections

// returnIdle waits, for at most returnTime, until no connection in the pool is in use. Connections that do not answer
// are then closed, so that the next borrower does not get broken connections.
func returnIdle(pool *pgxpool.Pool) {
	ctx, cancel := context.WithTimeout(context.Background(), returnTime)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for pool.Stat().AcquiredConns() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	for _, c := range pool.AcquireAllIdle(ctx) {
		if c.Ping(ctx) != nil {
			c.Conn().Close(ctx)
		}
		c.Release()
	}
}
