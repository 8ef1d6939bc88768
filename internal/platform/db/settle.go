package db

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// If a connection is lost between a COMMIT and its answer, the server may have committed, may still be committing, or
// may not have read the COMMIT. PostgreSQL can report the status of a transaction by its id (pg_xact_status). The
// client does not know that id, because the server would have sent it with the lost answer. The settle method checks
// whether the connection's server process still exists, and whether the row that the [Tx.Proof] query looks for exists.
// Only this transaction can have inserted that row. If the row exists, the transaction was committed. If neither the
// process nor the row exists, nothing was stored and nothing will be stored.
//
// Behind a pooler, a server process goes to another client after each transaction. Therefore, settle checks whether the
// process is still executing the same transaction, and never terminates the process during another transaction.

// backend is the server process of a connection, or of a transaction behind a pooler. The start time is needed because
// another process may later get the same pid, and because a pooler's process executes many transactions.
type backend struct {
	pid   int32
	start time.Time // start of the process, or of the transaction if inTx is set
	inTx  bool
}

// isBackend returns the condition on pg_stat_activity that selects the process with the pid $1 and the start time $2.
func (b *backend) isBackend() string {
	if b.inTx {
		return `pid = $1 AND xact_start = $2`
	}
	return `pid = $1 AND backend_start = $2`
}

// mayBeBackend is like isBackend, but also selects a process whose transaction PostgreSQL does not show.
func (b *backend) mayBeBackend() string {
	if b.inTx {
		return `pid = $1 AND (xact_start = $2 OR backend_start IS NULL OR state = 'disabled')`
	}
	return b.isBackend()
}

const backendKey = "postrider backend"

// stillLimit sets how long a transaction may be idle, unless the server already has a shorter limit. The
// current_setting and pg_stat_get_activity functions take half as long as the pg_settings and pg_stat_activity views.
const stillLimit = `SELECT set_config('idle_in_transaction_session_timeout', $1, false)
	WHERE CAST(current_setting('idle_in_transaction_session_timeout') AS INTERVAL)
	NOT BETWEEN '1 ms' AND CAST($1 AS INTERVAL)`

// proof is a query that finds a row if and only if a transaction was committed.
type proof struct {
	sql  string
	args []any
}

// Proof sets the query that determines whether the transaction was committed when the answer to its COMMIT is lost. The
// query must find a row if and only if the transaction was committed. The transaction must insert that row with a new
// id, and the row must not be deleted within a minute. A transaction needs only one proof; additional calls to Proof
// are ignored.
func (t *Tx) Proof(sql string, args ...any) {
	if t.proof == nil {
		t.proof = &proof{sql, args}
	}
}

// introduce records the server process of a new connection, and sets the time after which the server ends an idle
// transaction. Without this limit, the locks held by a client machine that lost power or its network connection would
// remain for hours. If the server does not report its process, settle can only confirm a commit by finding the row.
func introduce(ctx context.Context, c *pgx.Conn, still time.Duration) error {
	limit(c, connectTime)
	defer limit(c, 0)
	const once = pgx.QueryExecModeExec // prepares nothing
	if _, err := c.Exec(ctx, stillLimit, once, strconv.FormatInt(still.Milliseconds(), 10)+" ms"); err != nil {
		return err
	}
	// JIT compilation of a filter with many rules would take seconds for a read that takes milliseconds. Statements use
	// indexes wherever they can. While a table is nearly empty, PostgreSQL would prefer to read all of it, and would keep
	// such a plan when the table has grown. All contact properties share one table and its statistics, so PostgreSQL would
	// also overestimate the number of rows and read all teams' values. A server may refuse to change a setting.
	for _, setting := range []string{"SET jit = off", "SET enable_seqscan = off"} {
		if _, err := c.Exec(ctx, setting, once); err != nil && c.IsClosed() {
			return err
		}
	}
	var b backend
	err := c.QueryRow(ctx, `SELECT pid, backend_start FROM pg_stat_get_activity(pg_backend_pid())`, once).Scan(&b.pid,
		&b.start)
	if c.IsClosed() || ctx.Err() != nil {
		return err
	}
	if err == nil {
		c.PgConn().CustomData()[backendKey] = &b
	}
	return nil
}

// identity returns the server process of an open or closed connection, or nil if the process is unknown.
func identity(c *pgx.Conn) *backend {
	b, _ := c.PgConn().CustomData()[backendKey].(*backend)
	return b
}

// settle determines whether a transaction was committed if its connection was lost after COMMIT was sent. After
// pgProveTime, or after p.patience if that is shorter, settle stops trying and returns an error.
func (p *postgresDB) settle(b *backend, row *proof) (committed bool, err error) {
	if row == nil {
		return false, errors.New("nothing that the transaction stored can be looked up")
	}
	limited := min(pgProveTime, p.patience)
	ctx, cancel := context.WithTimeout(context.Background(), limited)
	defer cancel()
	var c *pgx.Conn
	defer func() { giveUp(c) }()
	began := time.Now()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, 500*time.Millisecond) {
		if c == nil || c.IsClosed() {
			c, err = pgx.ConnectConfig(ctx, p.config)
		}
		if err == nil {
			var ended bool
			committed, ended, err = look(ctx, c, b, row, time.Since(began) > limited/4)
			if err == nil && (committed || ended) {
				return committed, nil
			}
		}
		if err == nil {
			err = errors.New("the transaction has not ended")
		}
		select {
		case <-ctx.Done():
			return false, err
		case <-time.After(wait):
		}
		err = nil
	}
}

// look checks once whether the server process exists, or still executes the transaction, and then whether the proof's
// row exists. If the server process has ended, the proof's row cannot appear later. If endIt is true, look terminates
// the process, because after a network failure the process might still read the COMMIT later. The look function does
// not terminate a process that waits for a standby, because its transaction is committed but not yet replicated.
func look(ctx context.Context, c *pgx.Conn, b *backend, row *proof, endIt bool) (committed, ended bool, err error) {
	var standby, lives bool
	if b == nil {
		lives = true
		err = c.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby)
	} else {
		err = c.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_stat_activity WHERE `+
			b.mayBeBackend()+`)`, b.pid, b.start).Scan(&standby, &lives)
	}
	if err == nil && standby {
		err = errors.New("the server is a standby, which may lag behind")
	}
	if err != nil {
		return false, false, err
	}
	rows, err := c.Query(ctx, row.sql, row.args...)
	if err != nil {
		return false, false, err
	}
	committed = rows.Next()
	rows.Close()
	if err = rows.Err(); err != nil || committed || !lives {
		return committed, err == nil && !lives, err
	}
	if endIt && b != nil {
		_, err = c.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
			WHERE `+b.isBackend()+` AND wait_event IS DISTINCT FROM 'SyncRep'`, b.pid, b.start)
		if _, refused := errors.AsType[*pgconn.PgError](err); refused {
			err = nil // the node may lack permission to terminate the process, but the process may still end by itself
		}
	}
	return false, false, err
}

// giveUp closes a connection that is no longer needed.
func giveUp(c *pgx.Conn) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgEndTime)
	defer cancel()
	c.Close(ctx)
}
