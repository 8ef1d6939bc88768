package db

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// When a connection is lost between a COMMIT and its answer, the server may have carried it out, may be at it still, or
// may not even have read it. PostgreSQL can tell the fate of a transaction by its id (pg_xact_status), but the id would
// come with the very answer that was lost: the server sends what it has to say at the end of a request. So two things
// that are known before are asked for: whether the process that served the connection still lives, and whether a row is
// there that the transaction alone could have made ([Tx.Proof]). The row says committed. No process, and then no row,
// says that nothing was stored, and that nothing will be.

// backend is the server's process for a connection. Its number alone may be given to another one later.
type backend struct {
	pid   int32
	start time.Time
}

const backendKey = "postrider backend"

// notLonger sets a limit of time, unless the server has a shorter one.
const notLonger = `SELECT set_config(name, $2, false) FROM pg_settings WHERE name = $1
	AND CASE WHEN name = $1 THEN CAST(setting AS BIGINT) NOT BETWEEN 1 AND CAST($2 AS BIGINT) END`

// introduce notes which process of the server a new connection has, and has that process end when a transaction stands
// still for so long: a machine that lost its power, or whose network is cut, says no goodbye, and what it has locked
// would be so for hours. Where the server does not say which process it is, commits cannot be settled by its end.
func introduce(ctx context.Context, c *pgx.Conn, still time.Duration) error {
	limit(c, connectTime)
	defer limit(c, 0)
	_, err := c.Exec(ctx, notLonger, "idle_in_transaction_session_timeout", strconv.FormatInt(still.Milliseconds(), 10))
	if err != nil {
		return err
	}
	var b backend
	err = c.QueryRow(ctx, `SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()`).Scan(&b.pid, &b.start)
	if c.IsClosed() || ctx.Err() != nil {
		return err
	}
	if err == nil {
		c.PgConn().CustomData()[backendKey] = &b
	}
	return nil
}

// identity is the process of a connection, which may be closed; nil when it is not known.
func identity(c *pgx.Conn) *backend {
	b, _ := c.PgConn().CustomData()[backendKey].(*backend)
	return b
}

// settle finds out whether a transaction was committed whose COMMIT was sent and whose connection is lost. An error
// says that it could not.
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

// look looks once. The process is looked for first: once it is gone, what the row says is final. A process that does
// not end by itself is told to: its network may be cut, and it would read our COMMIT when that is mended. One that
// waits for a standby is left alone, because its transaction is committed here and not yet safe.
func look(ctx context.Context, c *pgx.Conn, b *backend, row *proof, endIt bool) (committed, ended bool, err error) {
	var standby, lives bool
	if b == nil {
		lives = true
		err = c.QueryRow(ctx, `SELECT pg_is_in_recovery()`).Scan(&standby)
	} else {
		err = c.QueryRow(ctx, `SELECT pg_is_in_recovery(), EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2)`,
			b.pid, b.start).Scan(&standby, &lives)
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
			WHERE pid = $1 AND backend_start = $2 AND wait_event IS DISTINCT FROM 'SyncRep'`, b.pid, b.start)
		if _, refused := errors.AsType[*pgconn.PgError](err); refused {
			err = nil // it may not be ours to end; it may end by itself
		}
	}
	return false, false, err
}

// giveUp closes a connection that is needed no more.
func giveUp(c *pgx.Conn) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pgEndTime)
	defer cancel()
	c.Close(ctx)
}
