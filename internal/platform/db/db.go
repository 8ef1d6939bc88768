// Package db stores Postrider's rows in SQLite or PostgreSQL, and uses the same SQL for both engines.
//
// # SQL
//
// Parameters are $1, $2 and so on. Ids are 16 bytes (see [ID]) and generated in Go; times are BIGINT microseconds UTC;
// booleans are BOOLEAN; bytes are BYTEA; JSON is TEXT and never queried. Columns are NOT NULL, with an empty value for
// "none", so that scans need not handle NULL; only ids and rare columns of large tables may be NULL. A named unique
// index ensures uniqueness, and [DB.UniqueViolation] reports a violation. Code must not check it by a SELECT instead.
//
// A list is passed as one parameter, a []string, []int64 or []float64, so that a statement has the same text for lists
// of any length. The SQL must use a list parameter in exactly one of the following forms, which are translated for
// SQLite. In the form x <> ALL($n), the list must not be nil:
//
//	x = ANY($n)
//	x <> ALL($n)
//	SELECT UNNEST(CAST($n AS TEXT[]))
//
// The order of strings depends on a PostgreSQL database. COLLATE "C" after a string orders by bytes, as SQLite does.
// A query that uses a partial index must repeat the index's condition literally. For example, neither engine infers
// from dedupe = $1 that dedupe is not empty.
//
// SQLite databases have no planner statistics, because ANALYZE never runs on them. SQLite may therefore use the primary
// key although another index matches fewer rows. The comment /*sqlite: INDEXED BY name */ after the table name selects
// the other index. The statement fails if the index does not exist. COALESCE(team_id, team_id) = $1 uses no index.
//
// # Reading and writing
//
// A [Reader] runs SELECTs. Only a [Tx] can write, and only [DB.Update] provides a Tx. If Update returns nil, all
// changes made by its function are on disk. If Update returns an error other than [ErrUnknown], no changes are stored.
// On SQLite, concurrent Updates share one commit and one fsync, each in a separate savepoint. On PostgreSQL each Update
// is a transaction, and writes whose results are not needed are sent in one round trip (see [Tx.Queue]).
//
// The function given to Update may run more than once, and on SQLite it blocks the only writer. The function given to
// Update must not use the network, render, hash, sign, or do other slow work.
//
// [DB.ReadLong] runs reads that scan very many rows. Long reads have a time limit. Only a few of them may run at the
// same time, so that other reads find a free connection.
//
// # Failures
//
// Open returns an error if it detects that an SQLite file is damaged (see [Options.Beside]).
//
// If the disk is full, the connection is lost, the server does not answer, or a commit fails, reads and writes return a
// fault of kind Unavailable that wraps [ErrUnavailable]. No single wait for PostgreSQL takes longer than
// Options.Patience, except in [DB.Migrate]. If a statement in an Update fails, the Update fails and must not run any
// more statements.
//
// If a connection to PostgreSQL is lost between COMMIT and its answer, Update determines the outcome on a new
// connection with the query that was passed to [Tx.Proof]. Update returns nil if the transaction was committed. Update
// runs the function again only if it is certain that the transaction was not committed. If Update cannot determine the
// outcome, or if SQLite's COMMIT ends with an I/O error, Update returns [ErrUnknown] and does not run the function
// again. A caller that retries after ErrUnknown must be idempotent, for example by using an idempotency key or a job
// fence.
//
// # Out of scope
//
// The package does not check permissions and contains no code specific to email.
package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

// ErrNoRows is the error that Row.Scan returns if the query found no row.
var ErrNoRows = sql.ErrNoRows

// Row is the result of a query for one row.
type Row interface {
	Scan(dest ...any) error
}

// Rows is the result of a query. The caller must close the Rows and check Err; [Collect] does both.
type Rows interface {
	Row
	Next() bool
	Err() error
	Close()
}

// querier is implemented by a pool of readers and by a transaction on each engine.
type querier interface {
	query(ctx context.Context, sql string, args []any) (Rows, error)
	queryRow(ctx context.Context, sql string, args []any) Row
}

// Reader runs SELECTs. Packages that must not write receive a Reader, not a [DB].
type Reader struct{ q querier }

// Query runs a SELECT.
func (r Reader) Query(ctx context.Context, sql string, args ...any) (Rows, error) {
	return r.q.query(ctx, sql, args)
}

// QueryRow runs a SELECT for one row; Scan returns [ErrNoRows] if the query finds no row.
func (r Reader) QueryRow(ctx context.Context, sql string, args ...any) Row {
	return r.q.queryRow(ctx, sql, args)
}

// Collect reads all rows with the scan function and closes the Rows. The caller's query must limit the number of rows.
func Collect[T any](rows Rows, err error, scan func(Row) (T, error)) ([]T, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		t, err := scan(rows)
		if err != nil {
			return nil, fmt.Errorf("scan row: %w", err)
		}
		all = append(all, t)
	}
	return all, rows.Err()
}

// writer is implemented by the transactions of both engines.
type writer interface {
	querier
	exec(ctx context.Context, sql string, args []any) (int64, error)
	queue(ctx context.Context, sql string, args []any)
	queueOne(ctx context.Context, missing error, sql string, args []any)
	queueHold(ctx context.Context, missing error, table string, id any)
	// queueRow queues a row of a statement; missing is nil if the row need not exist.
	queueRow(ctx context.Context, missing error, s *RowStatement, args []any)
}

// Tx is one transaction. A Tx is valid until the function that received it returns.
type Tx struct {
	Reader
	w         writer
	now       time.Time
	oneWriter bool
	after     []func()
	proof     *proof
	parts     *parts // partitions that statements may name; nil on SQLite
	inPart    bool   // whether a statement names a partition
	changes   int    // number of statements so far that changed rows or were queued
}

// Query runs a SELECT, or a statement that changes rows and returns them.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (Rows, error) {
	t.mayChange(sql)
	return t.w.query(ctx, sql, args)
}

// QueryRow is like Query but reads one row. Scan returns [ErrNoRows] if there is no row.
func (t *Tx) QueryRow(ctx context.Context, sql string, args ...any) Row {
	t.mayChange(sql)
	return t.w.queryRow(ctx, sql, args)
}

// mayChange counts a statement that returns rows as a change, unless it is a SELECT.
func (t *Tx) mayChange(sql string) {
	if !strings.HasPrefix(strings.TrimLeft(sql, " \t\n"), "SELECT") {
		t.changes++
	}
}

// Exec runs a statement and returns how many rows it changed.
func (t *Tx) Exec(ctx context.Context, sql string, args ...any) (int64, error) {
	n, err := t.w.exec(ctx, sql, args)
	if n > 0 {
		t.changes++
	}
	return n, err
}

// Queue runs a statement whose result is not needed. On PostgreSQL the statement is sent together with the next
// statement that needs an answer, or with the commit. If a queued statement fails, the statement or commit that is sent
// with it reports the error. Queued statements run in the order in which they were queued.
func (t *Tx) Queue(ctx context.Context, sql string, args ...any) {
	t.changes++
	t.w.queue(ctx, sql, args)
}

// QueueOne queues an UPDATE or a DELETE that must change a row, such as one with a fence. If the statement changes no
// row, the transaction fails with the given error. On PostgreSQL, this failure is reported only when the answer to the
// statement arrives.
func (t *Tx) QueueOne(ctx context.Context, missing error, sql string, args ...any) {
	t.changes++
	t.w.queueOne(ctx, missing, sql, args)
}

// QueueHold prevents the deletion of a row until the transaction ends. Another transaction that tries to delete the row
// waits until this transaction ends and then sees this transaction's changes. If the row does not exist, the
// transaction fails as with QueueOne. The id is an ID, or a string if the table's ids are texts.
func (t *Tx) QueueHold(ctx context.Context, missing error, table string, id any) {
	t.w.queueHold(ctx, missing, table, id)
}

// Now returns the time of the transaction. [DB.Now] is called once per transaction, so that all rows that a transaction
// writes have the same time.
func (t *Tx) Now() time.Time { return t.now }

// OneWriter reports whether only one transaction can write at a time, as on SQLite. If OneWriter is false, as on
// PostgreSQL, a SELECT that claims rows needs FOR UPDATE SKIP LOCKED, which skips rows that another node is claiming.
func (t *Tx) OneWriter() bool { return t.oneWriter }

// Serialize makes transactions with the same name run one after another. Serialize is for constraints that no index can
// enforce. On SQLite, which has one writer, Serialize does nothing.
func (t *Tx) Serialize(ctx context.Context, name string) error {
	if t.oneWriter {
		return nil
	}
	_, err := t.w.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, []any{name})
	return err
}

// AfterCommit runs f after the transaction is committed. A crash may prevent the call, so f should only send hints, for
// example to wake up a worker.
func (t *Tx) AfterCommit(f func()) { t.after = append(t.after, f) }

// engine abstracts the differences between the two databases.
type engine interface {
	querier
	ready(ctx context.Context) error
	update(ctx context.Context, fn func(*Tx) error) error
	updateApart(ctx context.Context, fn func(*Tx) error) error
	now() time.Time
	keepTime(ctx context.Context)
	unique(err error) (constraint string, ok bool)
	migrate(ctx context.Context, run func(writer) error) error
	notify(ctx context.Context, topic, payload string) error
	// listen calls began each time that it begins to receive hints and earlier hints are lost.
	listen(ctx context.Context, topics []string, began func(), got func(topic, payload string)) error
	name() string
	partitions() *parts // the known partitions; nil on SQLite
	places() int        // the maximum number of simultaneous long reads
	readLong(ctx context.Context, fn func(querier) error) error
	readRow(ctx context.Context, q *RowQuery, dest, args []any) error
	close()
}

// DB is an open database. A DB is safe for concurrent use.
type DB struct {
	Reader
	e      engine
	log    *slog.Logger
	hints  hints
	parts  *parts
	beside bool
	wait   time.Duration // maximum wait for the database
	long   *fairshare.Turns

	together [classes]*gather[shared]
}

// Options are the parameters of [Open].
type Options struct {
	URL      string        // postgres://... or the path to an SQLite file
	Setting  string        // name of the setting or flag with URL, for errors; "" means database_url
	MaxConns int           // number of PostgreSQL connections or SQLite readers; 0 means a default
	Patience time.Duration // maximum wait for a connection to PostgreSQL and for each answer; 0 means 20 seconds
	Log      *slog.Logger
	Trace    func(Statement) // function that is called with each statement; may be nil
	OnUpdate UpdateObserver  // called after each transaction; may be nil

	// DirectURL leads to the same PostgreSQL database without a pooler, if URL leads to a pooler such as PgBouncer in
	// transaction mode. DirectURL is used for hints, heartbeats, migrations, and for looking up lost commits. If
	// DirectURL is empty, URL is used for everything, and a pooler must keep one session for each client.
	DirectURL string

	// Break reports whether a statement must fail. Only tests set Break.
	Break func(Statement) bool

	// Borrow is a PostgreSQL database whose connections Open uses instead of opening new ones. Close does not close
	// borrowed connections. Only tests set Borrow.
	Borrow *DB

	// Beside must be set if a node may be running on the same database. Commands set Beside. If Beside is set, Close
	// sends this process's hints to that node. If Beside is not set and an SQLite file was not closed cleanly, Open
	// checks the file for at most a minute, and fails if it finds damage.
	Beside bool
}

// Open opens the database and checks that the database answers. Open does not run migrations; [DB.Migrate] does.
func Open(ctx context.Context, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Patience <= 0 {
		o.Patience = patience
	}
	var e engine
	var err error
	if o.Borrow != nil {
		e, err = borrow(o.Borrow)
	} else if IsPostgres(o.URL) {
		e, err = openPostgres(ctx, o)
	} else {
		e, err = openSQLite(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	if o.Trace != nil || o.Break != nil {
		e = traced{e, tracer{o.Trace, o.Break}}
	}
	d := &DB{Reader: Reader{e}, e: e, log: o.Log, beside: o.Beside, wait: o.Patience, long: newLong(e.places()),
		parts: e.partitions(), together: newTogether()}
	d.hints.init()
	return d, nil
}

// IsPostgres reports whether url names a PostgreSQL database rather than an SQLite file.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// Engine returns "sqlite" or "postgres".
func (d *DB) Engine() string { return d.e.name() }

// Alone reports whether only one node can use this database, which is true for SQLite. Even on SQLite, a command may
// change rows while the node runs.
func (d *DB) Alone() bool { return d.e.name() == "sqlite" }

// Snapshot writes a consistent copy of an SQLite database to an empty file. Reads and writes continue while Snapshot
// runs. On PostgreSQL, Snapshot returns an error.
func (d *DB) Snapshot(ctx context.Context, to string) error {
	s, ok := sqliteOf(d.e)
	if !ok {
		return errors.New("only SQLite makes snapshots")
	}
	return s.snapshot(ctx, to)
}

// Close waits for Updates in progress and closes all connections. If [Options.Beside] is set, Close first sends pending
// hints, which takes at most 5 s.
func (d *DB) Close() {
	if d.beside {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		d.flushHints(ctx)
		cancel()
	}
	d.e.close()
}

// Ready returns an error if the database does not answer, or does not accept writes: if PostgreSQL is a standby, or if
// SQLite cannot store anything because its disk is full, read-only or failing. On SQLite, Ready commits a small change
// unless a commit succeeded within the last seconds. Concurrent calls share one commit.
func (d *DB) Ready(ctx context.Context) error { return d.e.ready(ctx) }

// Update runs fn in a transaction. Update returns nil after the commit is on disk. If Update returns an error other
// than [ErrUnknown], no changes are stored.
func (d *DB) Update(ctx context.Context, fn func(*Tx) error) error {
	return d.e.update(ctx, withAddition(ctx, fn))
}

// UpdateApart is like Update but uses a separate connection. UpdateApart is for heartbeats, which must not wait for
// other work. Use UpdateApart only for a few small updates. On PostgreSQL, it also ends at the deadline of ctx while it
// waits for the answer to its COMMIT. On SQLite, it is the same as Update, because the writer never delays it for long.
func (d *DB) UpdateApart(ctx context.Context, fn func(*Tx) error) error {
	return d.e.updateApart(ctx, fn)
}

// Repeat runs step in consecutive transactions until a transaction changes no rows. Repeat is for work on many rows;
// each transaction should handle a bounded number of rows. The step function returns how many rows it changed, and must
// not select those rows again. Repeat stops at the first error; the caller may call Repeat again later.
func (d *DB) Repeat(ctx context.Context, step func(*Tx) (int64, error)) error {
	for n := int64(1); n > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := d.Update(ctx, func(tx *Tx) (err error) {
			n, err = step(tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// UniqueViolation returns the name of the unique index that err reports as violated.
func (d *DB) UniqueViolation(err error) (index string, ok bool) {
	if err == nil {
		return "", false
	}
	return d.e.unique(err)
}

// Violates reports whether err is a violation of the unique index with the given name.
func (d *DB) Violates(err error, index string) bool {
	name, ok := d.UniqueViolation(err)
	return ok && name == index
}

// Micros returns a time in the stored form: microseconds since 1970 UTC, or 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

// MicrosOrNull is like Micros, but returns nil, which is stored as NULL, for the zero time.
func MicrosOrNull(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

// Time converts the result of Micros back to a time.
func Time(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// Now returns the current time of this machine's clock, in UTC and whole microseconds, as the database stores times.
// Use [DB.Now] for times that are compared with times from other nodes.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// recovered calls fn and converts a panic to an error, so that SQLite's only writer keeps running.
func recovered(fn func(*Tx) error, t *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in an update: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// hints sends wake-ups between nodes. A lost hint delays work by at most a poll interval.
type hints struct {
	mu      sync.Mutex
	pending map[string]map[string]bool
	kick    chan struct{}
	subs    map[string][]func(payload string)
	began   []func() // see OnListening
}

func (h *hints) init() {
	h.pending = map[string]map[string]bool{}
	h.subs = map[string][]func(string){}
	h.kick = make(chan struct{}, 1)
}

// Hint passes payload to the topic's subscribers on every node. Hint never blocks, and a hint may be lost.
func (d *DB) Hint(topic, payload string) {
	h := &d.hints
	h.mu.Lock()
	subs := h.subs[topic]
	others := d.beside || !d.Alone()
	if others {
		if h.pending[topic] == nil {
			h.pending[topic] = map[string]bool{}
		}
		h.pending[topic][payload] = true
	}
	h.mu.Unlock()
	for _, f := range subs {
		f(payload)
	}
	if others {
		select {
		case h.kick <- struct{}{}:
		default:
		}
	}
}

// OnHint registers f, which is called for each hint on the topic from this node and, while [DB.Run] runs, from other
// processes. The function f must not block. Call OnHint before Run.
func (d *DB) OnHint(topic string, f func(payload string)) {
	d.hints.mu.Lock()
	defer d.hints.mu.Unlock()
	d.hints.subs[topic] = append(d.hints.subs[topic], f)
}

// OnListening registers f, which is called each time [DB.Run] begins to receive hints from other processes: at its
// start and after each lost connection. Hints that other processes sent before are lost. On SQLite, f is never called,
// because hints from other processes wait in a table. The function f must not block. Call OnListening before Run.
func (d *DB) OnListening(f func()) {
	d.hints.mu.Lock()
	defer d.hints.mu.Unlock()
	d.hints.began = append(d.hints.began, f)
}

const (
	hintDelay = 10 * time.Millisecond // how long hints are collected before they are sent in one message
	closeTime = 5 * time.Second       // time limit for sending hints in Close
)

// Run sends hints to other processes, receives hints from them, and reads the server's time, until ctx ends. A node
// that runs on an SQLite file only receives hints, because no other process listens on that file. If listening fails,
// Run logs the error and retries every 2 s. On PostgreSQL, hints that are sent before the retry succeeds are lost.
func (d *DB) Run(ctx context.Context) error {
	h := &d.hints
	var topics []string
	h.mu.Lock()
	for t := range h.subs {
		topics = append(topics, t)
	}
	listening := h.began
	h.mu.Unlock()
	began := func() {
		for _, f := range listening {
			f()
		}
	}

	var wg sync.WaitGroup
	if !d.Alone() {
		wg.Go(func() { d.sendHints(ctx) })
	}
	wg.Go(func() { d.e.keepTime(ctx) })
	defer wg.Wait()
	for ctx.Err() == nil {
		err := d.e.listen(ctx, topics, began, func(topic, payload string) {
			h.mu.Lock()
			subs := h.subs[topic]
			h.mu.Unlock()
			for p := range strings.SplitSeq(payload, "\n") {
				for _, f := range subs {
					f(p)
				}
			}
		})
		if err != nil && ctx.Err() == nil {
			d.log.Warn("cannot listen for other nodes and commands; polling until it works again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	}
	return nil
}

func (d *DB) sendHints(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.hints.kick:
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(hintDelay):
		}
		d.flushHints(ctx)
	}
}

// flushHints sends the pending hints.
func (d *DB) flushHints(ctx context.Context) {
	d.hints.mu.Lock()
	pending := d.hints.pending
	d.hints.pending = map[string]map[string]bool{}
	d.hints.mu.Unlock()
	for topic, payloads := range pending {
		for _, p := range packHints(payloads) {
			if err := d.e.notify(ctx, topic, p); err != nil && ctx.Err() == nil {
				d.log.Warn("could not tell other nodes of new work; they will find it when they next poll", "error", err)
			}
		}
	}
}

// packHints joins payloads with newlines into messages under PostgreSQL's limit of 8,000 bytes. Payloads longer than
// 4,000 bytes and payloads that do not fit into eight messages are omitted. A node that receives eight hint messages
// polls for work anyway.
func packHints(payloads map[string]bool) []string {
	var out []string
	var b strings.Builder
	for p := range payloads {
		if len(p) > 4000 {
			continue
		}
		if b.Len()+len(p) > 7000 {
			out = append(out, b.String())
			b.Reset()
			if len(out) == 8 {
				return out
			}
		}
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p)
	}
	return append(out, b.String())
}
