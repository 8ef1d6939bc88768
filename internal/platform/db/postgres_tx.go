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
	pgConflictTries = 8 // tries of a transaction that PostgreSQL aborted because of a conflict
	pgBrokenTries   = 2 // tries of a transaction whose connection broke before anything was stored
)

func (p *postgresDB) update(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.pool, fn)
}

func (p *postgresDB) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.apart, fn)
}

// updateOn runs fn until PostgreSQL commits it or the tries are used up. It repeats fn after deadlocks and
// serialisation failures, and on connections that were already broken. Callers cannot prevent any of these failures.
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

// outcome is how a transaction ended.
type outcome struct {
	after []func()
	err   error
	tries int // total tries allowed after an outcome that stored nothing
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
		// The commit continues even if the caller is canceled: otherwise its outcome could be unknown.
		if err = w.commit(context.WithoutCancel(ctx)); err == nil {
			return outcome{after: t.after}
		}
	}
	quick := time.Since(began) < p.patience/2 // if so, a closed connection broke and did not time out
	if w.inDoubt(err) {
		p.release(c) // c is broken, and settling takes time
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

// pgTx is a transaction whose statements wait in a batch until an answer is needed. An Update that only queues takes
// one round trip, including its BEGIN and COMMIT.
type pgTx struct {
	c        *pgx.Conn
	patience time.Duration
	batch    *pgx.Batch
	fence    map[int]error // the error to report if the statement at that position of the batch yields no row
	begun    bool
	asked    bool // COMMIT was sent
	refused  bool // the server reported an error and rolled back
	err      error
}

func (t *pgTx) queue(_ context.Context, text string, args []any) {
	if !t.begun {
		t.begun = true
		t.batch.Queue("BEGIN")
	}
	t.batch.Queue(text, args...)
}

// queueOne makes the server abort the transaction if no row changes, because the COMMIT may already be on its way.
func (t *pgTx) queueOne(ctx context.Context, missing error, text string, args []any) {
	t.queueRows(ctx, missing, text+` RETURNING 1`, args)
}

// queueHold takes the weakest lock that a DELETE waits for. Other transactions may still change the row and hold it
// too.
func (t *pgTx) queueHold(ctx context.Context, missing error, table, id string) {
	t.queueRows(ctx, missing, `SELECT 1 FROM `+table+` WHERE id = $1 FOR KEY SHARE`, []any{id})
}

// queueRows makes the transaction fail with the error missing if a statement yields no row: the server then divides by
// zero.
func (t *pgTx) queueRows(ctx context.Context, missing error, text string, args []any) {
	t.queue(ctx, `WITH found AS (`+text+`) SELECT 1 / COUNT(*) FROM found`, args)
	if t.fence == nil {
		t.fence = map[int]error{}
	}
	t.fence[t.batch.Len()-1] = missing
}

// failed returns missing when err is the division by zero of a statement from queueRows, and err otherwise.
func failed(err error, missing error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && missing != nil && e.Code == divisionByZero {
		return missing
	}
	return err
}

// send sends the batch with one more statement, and reads every answer except that statement's, which the caller
// reads.
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
		return nil // even if the connection broke afterwards
	case closed != nil:
		t.refused = isRefusal(closed)
		return closed
	}
	t.refused = true
	return fmt.Errorf("the database answered %q to COMMIT", tag.String())
}

// isRefusal reports whether err is the server's report that a statement, and therefore the transaction, failed. If the
// server ends the connection (FATAL), the transaction may have been committed before.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR"
}

// inDoubt reports whether the outcome is unknown: the COMMIT may have reached the server, but no answer arrived.
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

// batchRows closes its batch together with its rows.
type batchRows struct {
	pgx.Rows
	br pgx.BatchResults
}

func (r *batchRows) Close() {
	r.Rows.Close()
	r.br.Close()
}
