package db

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/lib/id"
)

// A pooler such as PgBouncer in transaction mode gives a client another server process for each transaction. Therefore,
// statements through the pooler must not depend on a session: they use no prepared statements, and each transaction
// sets its own settings. LISTEN and heartbeats use direct connections (see Options.DirectURL).

// forPooler changes the configuration of connections that lead to a pooler. If the URL names a mode, for example for a
// pooler that supports prepared statements, the mode is kept.
func forPooler(c *pgxpool.Config, url string) {
	c.AfterConnect = nil // settings would stay on a session that other clients use
	if !strings.Contains(url, "default_query_exec_mode=") {
		// The client keeps the descriptions of statements, and the server keeps nothing.
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
	}
}

// openingText returns the statement that follows BEGIN in each transaction behind a pooler. The statement returns the
// transaction's server process and start time, and sets for this transaction what introduce sets for a session.
// PgBouncer refuses these settings as startup parameters.
func openingText(still time.Duration) string {
	return fmt.Sprintf(`SELECT pg_backend_pid(), now(), set_config('jit', 'off', TRUE),
		set_config('enable_seqscan', 'off', TRUE),
		set_config('idle_in_transaction_session_timeout',
			CASE WHEN CAST(current_setting('idle_in_transaction_session_timeout') AS INTERVAL)
			BETWEEN '1 ms' AND '%[1]d ms' THEN current_setting('idle_in_transaction_session_timeout') ELSE '%[1]d ms' END, TRUE)`,
		still.Milliseconds())
}

// sendOpened sends a batch. If the transaction still needs its opening, BEGIN and the opening go first.
func (t *pgTx) sendOpened(ctx context.Context, b *pgx.Batch) (pgx.BatchResults, error) {
	if t.opening == "" || t.session != nil {
		return t.c.SendBatch(ctx, b), nil
	}
	all := &pgx.Batch{}
	all.Queue("BEGIN")
	all.Queue(t.opening)
	all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
	br := t.c.SendBatch(ctx, all)
	s := backend{inTx: true}
	_, err := br.Exec()
	if err == nil {
		err = br.QueryRow().Scan(&s.pid, &s.start, nil, nil, nil)
	}
	if err != nil {
		br.Close()
		t.refused, t.err = isRefusal(err), err
		return nil, err
	}
	t.session = &s
	return br, nil
}

// open begins the transaction in a round trip of its own, if a pooler is used and the transaction has not begun.
// Without this round trip, a connection that is lost during the COMMIT would also lose the answer that names the server
// process.
func (t *pgTx) open(ctx context.Context) {
	if t.opening == "" || t.session != nil || t.err != nil {
		return
	}
	t.limit(t.patience)
	br, err := t.sendOpened(ctx, &pgx.Batch{})
	if err == nil {
		err = br.Close()
	}
	t.err = err
}

// identity returns the server process that executes the transaction, or nil if the process is unknown.
func (t *pgTx) identity() *backend {
	if t.opening != "" {
		return t.session
	}
	return identity(t.c)
}

// connect opens the first direct connection and finds out whether a pooler is used.
func (p *postgresDB) connect(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	c, err := p.apart.Acquire(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	// A pooler gives its clients cancellation keys of its own, which contain no pid.
	b := identity(c.Conn())
	if o.DirectURL != "" || b != nil && uint32(b.pid) != c.Conn().PgConn().PID() {
		p.opening = openingText(o.still())
	}
	return nil
}

const (
	checkTime = 10 * time.Second // time limit for checkAddresses
	hearTime  = 3 * time.Second  // time limit for a notification to arrive
)

// checkAddresses returns an error unless the direct address leads to the same database as the pooler and keeps one
// session for each client. Otherwise, hints would not arrive, and the proof of a commit would be sought in the wrong
// place.
func (p *postgresDB) checkAddresses(ctx context.Context, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	pooled, err := pgx.ConnectConfig(ctx, p.pool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("reach the database that database_url names: %w", startupHint(err))
	}
	defer giveUp(pooled)
	direct, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return fmt.Errorf("reach the database that database_direct_url names: %w", err)
	}
	defer giveUp(direct)
	if err := p.checkSameDatabase(ctx, pooled, direct); err != nil {
		return err
	}
	keeps, err := keepsSession(ctx, pooled, direct)
	switch {
	case err != nil:
		return fmt.Errorf("check that hints arrive: %w", err)
	case keeps:
		return nil
	}
	return transactionPooler(o)
}

// transactionPooler returns the error for an address that leads to a pooler in transaction mode, although the program
// needs a session there.
func transactionPooler(o Options) error {
	if o.DirectURL != "" {
		return errors.New("database_direct_url leads to a connection pooler in transaction mode: set it to the address of " +
			"PostgreSQL itself, or of a pooler in session mode")
	}
	return errors.New("database_url leads to a connection pooler in transaction mode: also set database_direct_url, to " +
		"the address of PostgreSQL itself")
}

// isOtherSession reports whether a statement failed because a pooler executed it in another session than the one that
// prepared it: the session does not know the statement, or another client has prepared one with the same name.
func isOtherSession(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "26000" || e.Code == "42P05")
}

// checkSameDatabase begins a transaction behind the pooler and looks for it on the direct connection.
func (p *postgresDB) checkSameDatabase(ctx context.Context, pooled, direct *pgx.Conn) error {
	const ownDatabase = `SELECT oid::BIGINT FROM pg_database WHERE datname = current_database()`
	t := p.transaction(pooled)
	defer t.rollback(ctx)
	var one, other int64
	if err := t.queryRow(ctx, ownDatabase, nil).Scan(&one); err != nil {
		return fmt.Errorf("reach the database that database_url names: %w", err)
	}
	var standby, sees, hidden bool
	err := direct.QueryRow(ctx, `SELECT (`+ownDatabase+`), pg_is_in_recovery(),
		EXISTS (SELECT FROM pg_stat_activity WHERE `+t.session.isBackend()+`),
		EXISTS (SELECT FROM pg_stat_activity WHERE `+t.session.mayBeBackend()+`)`, pgx.QueryExecModeExec, t.session.pid,
		t.session.start).Scan(&other, &standby, &sees, &hidden)
	switch {
	case err != nil:
		return fmt.Errorf("reach the database that database_direct_url names: %w", err)
	case standby:
		return errors.New("database_direct_url leads to a standby: set it to the server to which database_url leads")
	case hidden && !sees:
		return errors.New("the user of database_direct_url may not see the transactions of database_url's user: use the " +
			"same user for both, or GRANT pg_read_all_stats to the former; the server's track_activities must be on")
	case !sees || one != other:
		return errors.New("database_direct_url leads to another database than database_url: both must lead to the same " +
			"database on the same server")
	}
	return nil
}

// startupHint explains PgBouncer's refusal of a parameter in database_url.
func startupHint(err error) error {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok && strings.Contains(e.Message, "unsupported startup parameter") {
		return fmt.Errorf("%w: remove it from database_url, and set it for the user with ALTER ROLE ... SET", err)
	}
	return err
}

// keepsSession reports whether a direct connection that listens receives a notification that is sent through the
// pooler.
func keepsSession(ctx context.Context, pooled, direct *pgx.Conn) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, hearTime)
	defer cancel()
	channel := "postrider_check_" + id.New()
	if _, err := direct.Exec(limited, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return false, err
	}
	if _, err := pooled.Exec(limited, "SELECT pg_notify($1, '')", channel); err != nil {
		return false, err
	}
	_, err := direct.WaitForNotification(limited)
	if err != nil && ctx.Err() == nil && limited.Err() != nil {
		return false, nil
	}
	return err == nil, err
}
