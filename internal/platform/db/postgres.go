package db

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/internal/lib/fault"
)

const (
	patience       = 20 * time.Second // default time limit for acquiring a connection and for each answer
	connectTime    = 10 * time.Second // time limit for a new connection, unless the URL sets another limit
	migrationTime  = 24 * time.Hour   // time limit for a migration statement or for waiting for another node to migrate
	stillTime      = 15 * time.Second // maximum idle time in a transaction, in case the client vanishes silently
	apartStillTime = 3 * time.Second  // the same for UpdateApart, which must change the row of a lost transaction again
	pgEndTime      = 5 * time.Second  // time limit for a rollback or for closing a broken connection
	pgProveTime    = 10 * time.Second // time limit for finding out whether a transaction was committed
	apartConns     = 8                // maximum number of open or closing connections for UpdateApart and the clock
	migrationLock  = 794613           // the advisory lock that a node holds while it migrates
	readOnly       = "25006"          // SQLSTATE for a write on a standby, such as a former primary
	divisionByZero = "22012"
	lockTimeout    = "55P03" // SQLSTATE for a wait for a lock that exceeded lock_timeout
)

type postgresDB struct {
	pool     *pgxpool.Pool
	apart    *pgxpool.Pool // connections for UpdateApart and the clock, so that neither waits for other work
	clock    clock
	config   *pgx.ConnConfig // configuration of connections outside the pools
	patience time.Duration
	observe  UpdateObserver // may be nil
	opening  string         // statement that begins each transaction behind a pooler; see openingText
	parts    parts
	rowReads sync.Map // *gather[pendingRow] by *RowQuery

	borrowed bool        // whether the pools belong to another DB; see Options.Borrow
	closed   atomic.Bool // set by close if the pools are borrowed
}

func openPostgres(ctx context.Context, o Options) (*postgresDB, error) {
	c, err := poolConfig(o, o.setting(), o.URL)
	if err != nil {
		return nil, err
	}
	direct := c
	if o.DirectURL != "" {
		if direct, err = poolConfig(o, "database_direct_url", o.DirectURL); err != nil {
			return nil, err
		}
		forPooler(c, o.URL)
	}
	pool, err := pgxpool.NewWithConfig(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	// One connection is in use, and seldom two. If packets are lost, the driver needs up to 15 seconds to close a
	// connection, which counts until then. The other places are for the connections that replace it.
	few := direct.Copy()
	few.MaxConns, few.MinConns, few.MinIdleConns = apartConns, 0, 0
	few.AfterConnect = func(ctx context.Context, c *pgx.Conn) error {
		return introduce(ctx, c, min(o.still(), apartStillTime))
	}
	apart, err := pgxpool.NewWithConfig(ctx, few)
	if err != nil {
		pool.Close()
		return nil, fmt.Errorf("open database: %w", err)
	}
	p := &postgresDB{pool: pool, apart: apart, config: direct.ConnConfig, patience: o.Patience, observe: o.OnUpdate,
		parts: newParts()}
	if err := p.begin(ctx, o); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// poolConfig reads the URL of the setting with the given name.
func poolConfig(o Options, name, url string) (*pgxpool.Config, error) {
	c, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if o.MaxConns > 0 {
		c.MaxConns = int32(o.MaxConns)
	} else if c.MaxConns < 16 {
		c.MaxConns = 16
	}
	if c.ConnConfig.ConnectTimeout == 0 {
		c.ConnConfig.ConnectTimeout = min(connectTime, o.Patience)
	}
	c.PingTimeout = min(connectTime, o.Patience)
	still := o.still()
	c.AfterConnect = func(ctx context.Context, c *pgx.Conn) error { return introduce(ctx, c, still) }
	return c, nil
}

// setting returns the name of the setting with the URL.
func (o Options) setting() string { return cmp.Or(o.Setting, "database_url") }

// connectError is the error of a connection attempt in one line. The driver lists each attempt in a line of its own,
// and repeats those with and without TLS that failed in the same way.
type connectError struct{ err error }

func oneLine(err error) error { return &connectError{err} }

func (e *connectError) Unwrap() error { return e.err }

func (e *connectError) Error() string {
	var lines []string
	for line := range strings.Lines(e.err.Error()) {
		if line = strings.TrimSpace(line); line != "" && !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

// still returns the time limit for an idle transaction.
func (o Options) still() time.Duration { return min(stillTime, max(o.Patience, time.Second)) }

// begin connects to the database, checks the addresses, and reads the server's clock.
func (p *postgresDB) begin(ctx context.Context, o Options) error {
	err := p.beginAt(ctx, o)
	if isOtherSession(err) {
		return transactionPooler(o)
	}
	return err
}

func (p *postgresDB) beginAt(ctx context.Context, o Options) error {
	name := o.setting()
	if o.DirectURL != "" {
		name = "database_direct_url"
	}
	if err := p.connect(ctx, o); err != nil {
		return fmt.Errorf("reach the database that %s names: %w", name, oneLine(err))
	}
	if p.opening != "" {
		if err := p.checkAddresses(ctx, o); err != nil {
			return err
		}
	}
	for range clockTries {
		if err := p.readClock(ctx, startLimit); err != nil {
			return fmt.Errorf("reach the database that %s names: %w", name, err)
		}
	}
	return nil
}

func (p *postgresDB) partitions() *parts { return &p.parts }

func (p *postgresDB) name() string { return "postgres" }

// places returns the maximum number of simultaneous long reads: a quarter of the connections.
func (p *postgresDB) places() int { return int(p.pool.Config().MaxConns) / 4 }

// longSetting makes each long read use only one server process.
const longSetting = "SET LOCAL max_parallel_workers_per_gather = 0"

// readLong runs fn in a transaction, whose settings are sent together with the first statement. When the context ends,
// the driver cancels the statement on the server and closes the connection.
func (p *postgresDB) readLong(ctx context.Context, fn func(querier) error) error {
	c, err := p.acquire(ctx, p.pool)
	if err != nil {
		return err
	}
	defer p.release(c)
	t := p.transaction(c.Conn())
	t.queue(ctx, longSetting, nil)
	err = fn(t)
	t.rollback(ctx)
	return pgError(ctx, t.c, "read", err)
}

func (p *postgresDB) close() {
	if p.borrowed {
		p.closed.Store(true)
		returnIdle(p.pool)
		returnIdle(p.apart)
		return
	}
	p.apart.Close()
	p.pool.Close()
}

// acquire takes a connection from a pool. Answers on the connection must arrive within p.patience.
func (p *postgresDB) acquire(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	limited, cancel := context.WithTimeout(ctx, p.patience)
	defer cancel()
	if p.closed.Load() {
		return nil, unavailable("connect to the database", errors.New("it is closed"))
	}
	c, err := pool.Acquire(limited)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, unavailable("connect to the database", err)
	}
	limit(c.Conn(), p.patience)
	return c, nil
}

// release returns a connection to its pool; the connection may be nil.
func (p *postgresDB) release(c *pgxpool.Conn) {
	if c == nil {
		return
	}
	limit(c.Conn(), 0)
	c.Release()
}

// limit makes the connection fail if its answers do not arrive within d; if d is 0, there is no limit. The deadline is
// set on the socket, which is faster than a context with a deadline for each statement. If the connection is closed,
// limit has no effect.
func limit(c *pgx.Conn, d time.Duration) {
	var until time.Time
	if d > 0 {
		until = time.Now().Add(d)
	}
	c.PgConn().Conn().SetDeadline(until)
}

func (p *postgresDB) query(ctx context.Context, text string, args []any) (Rows, error) {
	c, err := p.acquire(ctx, p.pool)
	if err != nil {
		return nil, err
	}
	rows, err := c.Query(ctx, text, args...)
	if err != nil {
		err = pgError(ctx, c.Conn(), "query", err)
		p.release(c)
		return nil, err
	}
	return &pgRows{Rows: rows, ctx: ctx, p: p, c: c}, nil
}

func (p *postgresDB) queryRow(ctx context.Context, text string, args []any) Row {
	rows, err := p.query(ctx, text, args)
	if err != nil {
		return failedRow{err}
	}
	return oneRow{rows}
}

// pgRows releases its connection after its last row or when it is closed.
type pgRows struct {
	pgx.Rows
	ctx context.Context
	p   *postgresDB
	c   *pgxpool.Conn // nil once released
	err error
}

func (r *pgRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *pgRows) Close() {
	if r.c == nil {
		return
	}
	r.Rows.Close()
	r.err = pgError(r.ctx, r.c.Conn(), "read rows", r.Rows.Err())
	r.p.release(r.c)
	r.c = nil
}

func (r *pgRows) Err() error {
	if r.c != nil {
		return pgError(r.ctx, r.c.Conn(), "read rows", r.Rows.Err())
	}
	return r.err
}

// pgError converts an error from a statement or an update. Temporary errors become Unavailable faults: a lost
// connection, a server out of resources, and the errors that a server reports when it ends connections. All other
// errors from PostgreSQL and from the update's function are returned unchanged. If the server is a standby and refuses
// to write, pgError also closes the connection.
func pgError(ctx context.Context, c *pgx.Conn, what string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*fault.Error](err); ok || errors.Is(err, errNotID) {
		return err
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		if e.Code == readOnly {
			// If the URL names several hosts, a new connection may find the primary.
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), pgEndTime)
			defer cancel()
			c.Close(closing)
		}
		if passes(e.Code) || e.SeverityUnlocalized == "FATAL" || e.SeverityUnlocalized == "PANIC" {
			return unavailable(what, err)
		}
		return err
	}
	if gone := ctx.Err(); gone != nil {
		if !errors.Is(err, gone) {
			err = fmt.Errorf("%w: %w", gone, err)
		}
		return err
	}
	if c.IsClosed() || pgconn.SafeToRetry(err) {
		return unavailable(what, err)
	}
	return err
}

// IsLockTimeout reports whether a statement failed because it waited for a lock longer than PostgreSQL's lock_timeout.
func IsLockTimeout(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && e.Code == lockTimeout
}

// passes reports whether an error with the given SQLSTATE is caused by the state of the server rather than by the
// statement.
func passes(code string) bool {
	switch code[:min(2, len(code))] {
	case "08", // connection exceptions, which a pooler may report
		"53", // the server is out of resources: connections, memory, disk space
		"57", // operator intervention: canceled by an operator or a time limit; server starting or stopping
		"58": // I/O error on the server
		return true
	}
	return code == readOnly || code == lockTimeout || isConflictCode(code)
}

func isConflict(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && isConflictCode(e.Code)
}

// isConflictCode reports whether code is the SQLSTATE of a deadlock or a serialization failure.
func isConflictCode(code string) bool { return code == "40001" || code == "40P01" }

// ready checks that the server accepts writes.
func (p *postgresDB) ready(ctx context.Context) error {
	var no bool
	err := p.queryRow(ctx, `SELECT pg_is_in_recovery() OR current_setting('transaction_read_only')::BOOLEAN`,
		nil).Scan(&no)
	if err == nil && no {
		err = unavailable("ask whether the database takes writes", errors.New("it is read-only"))
	}
	return err
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

// migrate calls the run function with a transaction that holds the migration lock. If another node is migrating,
// migrate waits for it.
func (p *postgresDB) migrate(ctx context.Context, run func(writer) error) error {
	patient := &postgresDB{pool: p.pool, config: p.config, patience: migrationTime, opening: p.opening}
	if p.opening != "" {
		patient.pool = p.apart // because a pooler may limit the time of a statement or of a transaction
	}
	return patient.update(ctx, func(t *Tx) error {
		if _, err := t.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", int64(migrationLock)); err != nil {
			return err
		}
		return run(t.w)
	})
}

func (p *postgresDB) notify(ctx context.Context, topic, payload string) error {
	c, err := p.acquire(ctx, p.pool)
	if err != nil {
		return err
	}
	defer p.release(c)
	_, err = c.Exec(ctx, "SELECT pg_notify($1, $2)", "postrider_"+topic, payload)
	return pgError(ctx, c.Conn(), "notify", err)
}

func (p *postgresDB) listen(ctx context.Context, topics []string, began func(),
	got func(topic, payload string)) error {
	c, err := pgx.ConnectConfig(ctx, p.config)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx))
	for _, t := range topics {
		if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{"postrider_" + t}.Sanitize()); err != nil {
			return err
		}
	}
	began()
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
