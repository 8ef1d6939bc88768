package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	pgConflictTries = 8 // of a transaction that PostgreSQL ended for a conflict with another
	pgBrokenTries   = 2 // of one whose connection broke, and of which nothing was stored
)

func (p *postgresDB) update(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.pool, fn)
}

func (p *postgresDB) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.apart, fn)
}

// updateOn runs fn until PostgreSQL accepts it: a deadlock, a serialisation failure or a connection that was dead
// already is nobody's fault.
func (p *postgresDB) updateOn(ctx context.Context, pool *pgxpool.Pool, fn func(*Tx) error) error {
	for try := 1; ; try++ {
		o := p.updateOnce(ctx, pool, fn)
		if o.err == nil {
			for _, f := range o.after {
				f()
			}
			return nil
		}
		if try >= o.tries || ctx.Err() != nil {
			return o.err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(rand.IntN(try*5)+1) * time.Millisecond):
		}
	}
}

// outcome is what became of a transaction.
type outcome struct {
	after []func()
	err   error
	tries int // how often one that ended so may be run, nothing of it being stored
}

func (p *postgresDB) updateOnce(ctx context.Context, pool *pgxpool.Pool, fn func(*Tx) error) outcome {
	c, err := p.acquire(ctx, pool)
	if err != nil {
		return outcome{err: err}
	}
	defer func() { p.release(c) }()
	began := time.Now()
	w := &pgTx{c: c.Conn(), patience: p.patience, batch: &pgx.Batch{}}
	t := &Tx{Reader: Reader{w}, w: w, now: p.clock.now()}
	what := "update"
	if err = recovered(fn, t); err == nil {
		what = "commit"
		// The caller's going away must not leave a commit in doubt that the database could have finished.
		if err = w.commit(context.WithoutCancel(ctx)); err == nil {
			return outcome{after: t.after}
		}
	}
	quick := time.Since(began) < p.patience/2 // then a connection that is gone broke, and was not merely silent
	if w.inDoubt(err) {
		p.release(c) // it is dead, and finding out takes a while
		c = nil
		switch committed, cause := p.settle(identity(w.c), t.proof); {
		case cause != nil:
			return outcome{err: unknown("commit", fmt.Errorf("%w; to find out: %w", err, cause))}
		case committed:
			return outcome{after: t.after}
		}
	}
	w.rollback(ctx)
	o := outcome{err: pgError(ctx, w.c, what, err)}
	switch {
	case isConflict(err):
		o.tries = pgConflictTries
	case errors.Is(o.err, ErrUnavailable) && w.c.IsClosed() && quick:
		o.tries = pgBrokenTries
	}
	return o
}

// pgTx is a transaction whose statements wait in a batch until an answer is needed: an Update that only queues costs
// one round trip, its BEGIN and COMMIT included.
type pgTx struct {
	c        *pgx.Conn
	patience time.Duration
	batch    *pgx.Batch
	fence    map[int]error // of the batch: what is missing where a statement changes no row
	begun    bool
	asked    bool // to commit
	refused  bool // by the server, which has undone everything
	err      error
}

func (t *pgTx) queue(_ context.Context, text string, args []any) {
	if !t.begun {
		t.begun = true
		t.batch.Queue("BEGIN")
	}
	t.batch.Queue(text, args...)
}

// queueOne has the server itself fail the transaction when no row changes: its COMMIT may be on the way already.
func (t *pgTx) queueOne(ctx context.Context, missing error, text string, args []any) {
	t.queueRows(ctx, missing, text+` RETURNING 1`, args)
}

// queueHold takes the weakest lock that a DELETE waits for: the row may be changed meanwhile, and held by others.
func (t *pgTx) queueHold(ctx context.Context, missing error, table, id string) {
	t.queueRows(ctx, missing, `SELECT 1 FROM `+table+` WHERE id = $1 FOR KEY SHARE`, []any{id})
}

// queueRows fails the transaction when a statement yields no row.
func (t *pgTx) queueRows(ctx context.Context, missing error, text string, args []any) {
	t.queue(ctx, `WITH found AS (`+text+`) SELECT 1 / COUNT(*) FROM found`, args)
	if t.fence == nil {
		t.fence = map[int]error{}
	}
	t.fence[t.batch.Len()-1] = missing
}

// failed is the error of a statement of the batch that had these fences.
func failed(err error, missing error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && missing != nil && e.Code == divisionByZero {
		return missing
	}
	return err
}

// send sends all that waits and reads every answer but the last, which is the caller's.
func (t *pgTx) send(ctx context.Context, text string, args []any) (pgx.BatchResults, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.queue(ctx, text, args)
	b, fence := t.batch, t.fence
	t.batch, t.fence = &pgx.Batch{}, nil
	limit(t.c, t.patience)
	br := t.c.SendBatch(ctx, b)
	for i := range b.Len() - 1 {
		if _, err := br.Exec(); err != nil {
			br.Close()
			t.refused = isRefusal(err)
			t.err = failed(err, fence[i])
			return nil, t.err
		}
	}
	return br, nil
}

func (t *pgTx) exec(ctx context.Context, text string, args []any) (int64, error) {
	br, err := t.send(ctx, text, args)
	if err != nil {
		return 0, err
	}
	tag, err := br.Exec()
	if cerr := br.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.err = err
	}
	return tag.RowsAffected(), err
}

func (t *pgTx) query(ctx context.Context, text string, args []any) (Rows, error) {
	br, err := t.send(ctx, text, args)
	if err != nil {
		return nil, err
	}
	rows, err := br.Query()
	if err != nil {
		br.Close()
		t.err = err
		return nil, err
	}
	return &batchRows{rows, br}, nil
}

func (t *pgTx) queryRow(ctx context.Context, text string, args []any) Row {
	rows, err := t.query(ctx, text, args)
	if err != nil {
		return failedRow{err}
	}
	return oneRow{rows}
}

func (t *pgTx) commit(ctx context.Context) error {
	if !t.begun {
		return nil
	}
	t.asked = t.err == nil
	br, err := t.send(ctx, "COMMIT", nil)
	if err != nil {
		return err
	}
	tag, err := br.Exec()
	closed := br.Close()
	switch {
	case err != nil:
		t.refused = isRefusal(err)
		return err
	case tag.String() == "COMMIT":
		return nil // whatever became of the connection then
	case closed != nil:
		t.refused = isRefusal(closed)
		return closed
	}
	t.refused = true
	return fmt.Errorf("the database answered %q to COMMIT", tag.String())
}

// isRefusal reports whether an error is the server's word that a statement failed, and with it the transaction. When
// the server ends the connection instead (FATAL), the transaction may have been committed before.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR"
}

// inDoubt reports whether an error leaves open what became of the transaction: the COMMIT may have reached the server,
// and no answer to it came.
func (t *pgTx) inDoubt(err error) bool {
	return t.asked && !t.refused && t.c.IsClosed() && !pgconn.SafeToRetry(err)
}

func (t *pgTx) rollback(ctx context.Context) {
	if t.c.IsClosed() || t.c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgEndTime)
	defer cancel()
	limit(t.c, pgEndTime)
	if _, err := t.c.Exec(ctx, "ROLLBACK"); err != nil {
		t.c.Close(ctx) // a connection of unknown state must not go back to the pool
	}
}

// batchRows closes the batch with its rows.
type batchRows struct {
	pgx.Rows
	br pgx.BatchResults
}

func (r *batchRows) Close() {
	r.Rows.Close()
	r.br.Close()
}
