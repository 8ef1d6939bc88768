package db

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	pgConflictTries = 8 // maximum number of attempts if PostgreSQL aborts the transaction because of a conflict
	pgBrokenTries   = 2 // maximum number of attempts if the connection breaks before anything is stored
)

func (p *postgresDB) update(ctx context.Context, fn func(*Tx) error) error {
	return p.updateOn(ctx, p.pool, time.Time{}, fn)
}

func (p *postgresDB) updateApart(ctx context.Context, fn func(*Tx) error) error {
	until, _ := ctx.Deadline()
	return p.updateOn(ctx, p.apart, until, fn)
}

// updateOn runs fn in a transaction until PostgreSQL commits it or all attempts are used up. Only failures that callers
// cannot prevent are retried: deadlocks, serialization failures, and connections that were already broken. Unless until
// is zero, no answer is awaited after that time.
func (p *postgresDB) updateOn(ctx context.Context, pool *pgxpool.Pool, until time.Time, fn func(*Tx) error) error {
	began, waited := time.Now(), time.Duration(0)
	report := func(err error) error {
		if p.observe != nil {
			p.observe(waited, time.Since(began)-waited, err)
		}
		return err
	}
	for try := 1; ; try++ {
		o := p.updateOnce(ctx, pool, until, fn)
		waited += o.waited
		if o.err == nil {
			_ = report(nil)
			for _, f := range o.after {
				f()
			}
			return nil
		}
		if try >= o.tries || ctx.Err() != nil {
			return report(o.err)
		}
		select {
		case <-ctx.Done():
			return report(ctx.Err())
		case <-time.After(time.Duration(rand.IntN(try*5)+1) * time.Millisecond):
		}
	}
}

// outcome describes how a transaction ended.
type outcome struct {
	after []func()
	err   error
	tries int // maximum number of attempts if nothing was stored
	// waited is how long the transaction waited for a connection.
	waited time.Duration
}

func (p *postgresDB) updateOnce(ctx context.Context, pool *pgxpool.Pool, until time.Time,
	fn func(*Tx) error) (o outcome) {
	asked := time.Now()
	c, err := p.acquire(ctx, pool)
	began := time.Now()
	defer func() { o.waited = began.Sub(asked) }()
	if err != nil {
		return outcome{err: err}
	}
	defer func() { p.release(c) }()
	w := p.transaction(c.Conn())
	w.until = until
	t := &Tx{Reader: Reader{w}, w: w, now: p.clock.now(), parts: &p.parts}
	what := "update"
	if err = recovered(fn, t); err == nil {
		what = "commit"
		// The commit continues even if the caller's context is canceled, so that its outcome is known.
		if err = w.commit(context.WithoutCancel(ctx), t.proof != nil); err == nil {
			return outcome{after: t.after}
		}
	}
	quick := time.Since(began) < p.patience/2 // true if a closed connection cannot have timed out
	if w.inDoubt(err) {
		p.release(c) // release the broken connection first, because settling takes time
		c = nil
		switch committed, cause := p.settle(w.identity(), t.proof); {
		case cause != nil:
			return outcome{err: unknown("commit", fmt.Errorf("%w; to find out: %w", err, cause))}
		case committed:
			return outcome{after: t.after}
		}
	}
	w.rollback(ctx)
	o = outcome{err: pgError(ctx, w.c, what, err)}
	switch {
	case isConflict(err), t.inPart && p.parts.forget(err):
		o.tries = pgConflictTries
	case errors.Is(o.err, ErrUnavailable) && w.c.IsClosed() && quick:
		o.tries = pgBrokenTries
	}
	return o
}

// pgTx is a transaction that collects statements until an answer is needed. An Update that only queues statements needs
// one round trip, including its BEGIN and COMMIT.
type pgTx struct {
	c        *pgx.Conn
	patience time.Duration
	until    time.Time // time after which no answer is awaited; zero means no limit other than patience
	opening  string    // statement after BEGIN, if the connection leads to a pooler; see openingText
	session  *backend  // the transaction's server process, once the opening has been answered
	queued   []*queuedStatement
	begun    bool
	asked    bool // COMMIT was sent
	refused  bool // whether the server reported an error and rolled back
	err      error
}

// transaction returns a transaction that has not begun.
func (p *postgresDB) transaction(c *pgx.Conn) *pgTx {
	return &pgTx{c: c, patience: p.patience, opening: p.opening}
}

// queuedStatement is a statement whose answer is not needed by itself.
type queuedStatement struct {
	text    string
	args    []any
	list    *rowList // the statement's rows, if it is a RowStatement; text and args are not set
	missing error    // error to report if the statement changes fewer rows than it should
}

// limit makes the connection fail if its next answers do not arrive within d, or by the time t.until.
func (t *pgTx) limit(d time.Duration) {
	if !t.until.IsZero() {
		d = max(1, min(d, time.Until(t.until)))
	}
	limit(t.c, d)
}

func (t *pgTx) queue(_ context.Context, text string, args []any) {
	t.add(&queuedStatement{text: text, args: args})
}

func (t *pgTx) add(s *queuedStatement) {
	if !t.begun {
		t.begun = true
		if t.opening == "" {
			t.queued = append(t.queued, &queuedStatement{text: "BEGIN"})
		}
	}
	t.queued = append(t.queued, s)
}

// queueOne makes the server abort the transaction if no row changes. The client cannot abort the transaction, because
// the COMMIT may already be sent.
func (t *pgTx) queueOne(_ context.Context, missing error, text string, args []any) {
	t.add(&queuedStatement{text: text + ` RETURNING 1`, args: args, missing: missing})
}

// queueHold acquires the weakest row lock that blocks a DELETE. This lock allows other transactions to update the row
// or to acquire the same lock.
func (t *pgTx) queueHold(_ context.Context, missing error, table string, id any) {
	text := `SELECT 1 FROM ` + table + ` WHERE id = $1 FOR KEY SHARE`
	t.add(&queuedStatement{text: text, args: []any{id}, missing: missing})
}

// queueRow adds a row to the last list of its statement, or queues a new list. A change of a row does not join a list
// that runs before a later list of inserted rows of the same table, because that list may insert the row.
func (t *pgTx) queueRow(_ context.Context, missing error, s *RowStatement, args []any) {
	for i := len(t.queued) - 1; i >= 0; i-- {
		l := t.queued[i].list
		if l == nil {
			continue
		}
		if l.of == s && (t.queued[i].missing == nil) == (missing == nil) && l.add(args) {
			return
		}
		if l.of == s || l.of.inserts && !s.inserts && l.of.table == s.table {
			break
		}
	}
	l := &rowList{of: s}
	l.add(args)
	t.add(&queuedStatement{list: l, missing: missing})
}

// sent returns the statement as it is sent. A statement with the error missing divides by zero if it changes too few
// rows, so that the server reports an error and aborts the transaction.
func (s *queuedStatement) sent() (text string, args []any) {
	text, args = s.text, s.args
	enough := `COUNT(*)`
	if s.list != nil {
		if text, args = s.list.statement(); s.missing != nil {
			text += ` RETURNING 1`
		}
		if len(s.list.rows) > 1 {
			enough = `CAST(COUNT(*) = CARDINALITY($1) AS INTEGER)`
		}
	}
	if s.missing != nil {
		text = `WITH found AS (` + text + `) SELECT 1 / ` + enough + ` FROM found`
	}
	return text, args
}

// failed returns the given error in place of the division-by-zero error that a queued statement provokes. Any other
// error is returned unchanged.
func failed(err error, missing error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && missing != nil && e.Code == divisionByZero {
		return missing
	}
	return err
}

// send sends the batch together with one more statement, and reads all answers except the answer to that statement,
// which the caller reads.
func (t *pgTx) send(ctx context.Context, text string, args []any) (pgx.BatchResults, error) {
	if t.err != nil {
		return nil, t.err
	}
	t.queue(ctx, text, args)
	all, b := t.queued, &pgx.Batch{}
	t.queued = nil
	for _, s := range all {
		text, args := s.sent()
		b.Queue(text, args...)
	}
	t.limit(t.patience)
	br, err := t.sendOpened(ctx, b)
	if err != nil {
		return nil, err
	}
	for i := range len(all) - 1 {
		if _, err := br.Exec(); err != nil {
			br.Close()
			t.refused = isRefusal(err)
			t.err = failed(err, all[i].missing)
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

// commit commits the transaction. If the transaction has a proof, its server process must be known before the COMMIT is
// sent.
func (t *pgTx) commit(ctx context.Context, hasProof bool) error {
	if !t.begun {
		return nil
	}
	if hasProof {
		t.open(ctx)
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
		return nil // the transaction is committed, even if the connection broke afterwards
	case closed != nil:
		t.refused = isRefusal(closed)
		return closed
	}
	t.refused = true
	return fmt.Errorf("the database answered %q to COMMIT", tag.String())
}

// isRefusal reports whether err is the server's report that a statement, and therefore the transaction, failed. If the
// server ends the connection with a FATAL error, isRefusal returns false, because the transaction may already have been
// committed. The same is true if a pooler reports a lost connection to the server, which is an error of class 08.
func isRefusal(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(e.Code, "08")
}

// inDoubt reports whether the transaction's outcome is unknown, because the COMMIT may have reached the server but no
// answer arrived.
func (t *pgTx) inDoubt(err error) bool {
	return t.asked && !t.refused && t.c.IsClosed() && !pgconn.SafeToRetry(err) && !errors.Is(err, errNotID)
}

func (t *pgTx) rollback(ctx context.Context) {
	if t.c.IsClosed() || t.c.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgEndTime)
	defer cancel()
	t.limit(pgEndTime)
	if _, err := t.c.Exec(ctx, "ROLLBACK"); err != nil {
		t.c.Close(ctx) // a connection in an unknown state must not go back to the pool
	}
}

// batchRows are rows whose Close also closes the batch that they belong to.
type batchRows struct {
	pgx.Rows
	br pgx.BatchResults
}

func (r *batchRows) Close() {
	r.Rows.Close()
	r.br.Close()
}
