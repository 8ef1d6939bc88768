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
	pgConflictTries = 8      // of a transaction that PostgreSQL ended for a conflict with another
	migrationLock   = 794613 // the advisory lock under which one node migrates
)

type postgresDB struct {
	pool  *pgxpool.Pool
	apart *pgxpool.Pool // one connection that work never holds up
	clock clock
}

func openPostgres(ctx context.Context, o Options) (*postgresDB, error) {
	c, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, fmt.Errorf("read database_url: %w", err)
	}
	if o.MaxConns > 0 {
		c.MaxConns = int32(o.MaxConns)
	} else if c.MaxConns < 16 {
		c.MaxConns = 16
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	one := c.Copy()
	one.MaxConns, one.MinConns, one.MinIdleConns = 1, 0, 0
	apart, err := pgxpool.NewWithConfig(ctx, one)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	p := &postgresDB{pool: pool, apart: apart}
	if err := p.readClock(ctx); err != nil {
		p.close()
		return nil, fmt.Errorf("reach the database that database_url names: %w", err)
	}
	return p, nil
}

func (p *postgresDB) name() string { return "postgres" }

func (p *postgresDB) close() {
	p.apart.Close()
	p.pool.Close()
}

func (p *postgresDB) query(ctx context.Context, text string, args []any) (Rows, error) {
	return p.pool.Query(ctx, text, args...)
}

func (p *postgresDB) queryRow(ctx context.Context, text string, args []any) Row {
	return p.pool.QueryRow(ctx, text, args...)
}

func (p *postgresDB) update(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.pool, fn)
}

func (p *postgresDB) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.apart, fn)
}

// updateOn runs fn until PostgreSQL accepts it: a deadlock or a serialisation failure is nobody's fault.
func (p *postgresDB) updateOn(ctx context.Context, pool *pgxpool.Pool, fn func(*Tx) error) error {
	for try := 1; ; try++ {
		after, err := p.updateOnce(ctx, pool, fn)
		if err == nil {
			for _, f := range after {
				f()
			}
			return nil
		}
		if !isConflict(err) || try == pgConflictTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(rand.IntN(try*5)+1) * time.Millisecond):
		}
	}
}

func (p *postgresDB) updateOnce(ctx context.Context, pool *pgxpool.Pool, fn func(*Tx) error) ([]func(), error) {
	c, err := pool.Acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unavailable("connect", err)
	}
	defer c.Release()
	w := &pgTx{c: c.Conn(), batch: &pgx.Batch{}}
	t := &Tx{Reader: Reader{w}, w: w, now: p.clock.now(), lock: " FOR UPDATE SKIP LOCKED"}
	// The caller's going away must not leave a commit in doubt that the database could have finished.
	if err := recovered(fn, t); err != nil {
		w.rollback(ctx)
		return nil, pgError(ctx, "update", err)
	}
	if err := w.commit(context.WithoutCancel(ctx)); err != nil {
		w.rollback(ctx)
		return nil, pgError(ctx, "commit", err)
	}
	return t.after, nil
}

// pgError keeps what PostgreSQL says of a statement, and what the function itself said, and calls the rest a failure.
func pgError(ctx context.Context, what string, err error) error {
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return unavailable(what, err)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch e.Code[:2] {
		case "53", "57", "58": // out of resources (a full disk), shut down by an operator, input or output error
			return unavailable(what, err)
		}
		return err
	}
	if pgconn.SafeToRetry(err) && ctx.Err() == nil {
		return unavailable(what, err)
	}
	return err
}

func isConflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}

// pgTx is a transaction whose statements wait in a batch until an answer is needed: an Update that only queues costs
// one round trip, its BEGIN and COMMIT included.
type pgTx struct {
	c     *pgx.Conn
	batch *pgx.Batch
	fence map[int]error // of the batch: what is missing where a statement changes no row
	begun bool
	err   error
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
	t.queue(ctx, `WITH changed AS (`+text+` RETURNING 1) SELECT 1 / COUNT(*) FROM changed`, args)
	if t.fence == nil {
		t.fence = map[int]error{}
	}
	t.fence[t.batch.Len()-1] = missing
}

const divisionByZero = "22012"

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
	br := t.c.SendBatch(ctx, b)
	for i := range b.Len() - 1 {
		if _, err := br.Exec(); err != nil {
			br.Close()
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
	br, err := t.send(ctx, "COMMIT", nil)
	if err != nil {
		return err
	}
	tag, err := br.Exec()
	if cerr := br.Close(); err == nil {
		err = cerr
	}
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the database answered %q to COMMIT", tag.String())
	}
	return err
}

func (t *pgTx) rollback(ctx context.Context) {
	if t.c.IsClosed() || t.c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
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

type oneRow struct{ rows Rows }

func (r oneRow) Scan(dest ...any) error {
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

func (p *postgresDB) unique(err error) (string, bool) {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || e.Code != "23505" {
		return "", false
	}
	return e.ConstraintName, true
}

// migrate gives run a transaction under the migration lock, which waits for another node that migrates.
func (p *postgresDB) migrate(ctx context.Context, run func(writer) error) error {
	return p.update(ctx, func(t *Tx) error {
		if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		return run(t.w)
	})
}

func (p *postgresDB) notify(ctx context.Context, topic, payload string) error {
	_, err := p.pool.Exec(ctx, "SELECT pg_notify($1, $2)", "postrider_"+topic, payload)
	return err
}

func (p *postgresDB) listen(ctx context.Context, topics []string, got func(topic, payload string)) error {
	c, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, t := range topics {
		if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{"postrider_" + t}.Sanitize()); err != nil {
			return err
		}
	}
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		got(n.Channel[len("postrider_"):], n.Payload)
	}
}
