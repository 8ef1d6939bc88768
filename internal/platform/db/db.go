// Package db stores Postrider's rows in SQLite or PostgreSQL, with one SQL text for both.
//
// # SQL
//
// Parameters are $1, $2 and so on. Ids are TEXT made in Go; times are BIGINT microseconds UTC; booleans are BOOLEAN;
// bytes are BYTEA; JSON is TEXT and never queried. Columns are NOT NULL, with an empty value for "none", so that scans
// need not handle NULL. A named unique index decides uniqueness, and [DB.UniqueViolation] reports it. No code selects
// first and then inserts.
//
// A list is one parameter, a []string, []int64 or []float64, so that a statement has one text for lists of all lengths.
// The SQL must use the parameter in exactly one of these forms, because SQLite gets a different text for them. The list
// of the second form must not be nil:
//
//	x = ANY($n)
//	x <> ALL($n)
//	SELECT UNNEST(CAST($n AS TEXT[]))
//
// A query that uses a partial index repeats the condition of that index literally. For example, neither engine
// concludes from dedupe = $1 that dedupe is not empty.
//
// SQLite keeps no statistics. If it would use the primary key although another index finds fewer rows, the comment
// /*sqlite: INDEXED BY name */ after the table names that index. Without that index the statement fails.
//
// # Reading and writing
//
// A [Reader] runs every SELECT. Only [DB.Update] gives a [Tx], and only a Tx writes. If Update returns nil, all changes
// of its function are on disk. If Update returns an error other than [ErrUnknown], no changes are stored. On SQLite,
// Updates that wait at the same time share one commit and one fsync, each in a separate savepoint. On PostgreSQL each
// Update is a transaction, and writes whose result is not needed travel together (see [Tx.Queue]).
//
// The function given to Update may run more than once, and on SQLite it runs on the only writer. The function must not
// use the network, render, hash, sign, or do other slow work.
//
// [DB.ReadLong] runs reads of very many rows. These reads have a time limit, and few may run at once, so that other
// reads find free connections.
//
// # When it fails
//
// Open refuses a damaged SQLite file if it finds the damage (see [Options.Beside]).
//
// A full disk, a lost connection, a silent server or a failed commit causes a fault of kind Unavailable that wraps
// [ErrUnavailable], for reads and writes alike. No single wait for PostgreSQL takes longer than Options.Patience,
// except in [DB.Migrate]. A statement that fails ends its Update; no statement may follow it.
//
// If a connection to PostgreSQL is lost between COMMIT and its answer, Update looks up the outcome on a new connection,
// by the row that [Tx.Proof] names. Update returns nil if the transaction was committed. Update runs the function again
// only if the transaction was certainly not committed. If Update cannot find out the outcome, or if SQLite's COMMIT
// ends with an I/O error, the error is [ErrUnknown], and the function does not run again. The caller's retry must then
// be safe; idempotency keys and job fences serve this purpose.
//
// # What it does not do
//
// The package does not check permissions to read or write a row, and it knows nothing of email.
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

// ErrNoRows is the error of Row.Scan if the query found nothing.
var ErrNoRows = sql.ErrNoRows

// Row is the result of a query for one row.
type Row interface {
	Scan(dest ...any) error
}

// Rows is the result of a query. The caller must close it and check Err; [Collect] does both.
type Rows interface {
	Row
	Next() bool
	Err() error
	Close()
}

// querier is implemented by a pool of readers and by a transaction, on either engine.
type querier interface {
	query(ctx context.Context, sql string, args []any) (Rows, error)
	queryRow(ctx context.Context, sql string, args []any) Row
}

// Reader runs SELECTs. Packages that must not write are given a Reader instead of a [DB].
type Reader struct{ q querier }

// Query runs a SELECT.
func (r Reader) Query(ctx context.Context, sql string, args ...any) (Rows, error) {
	return r.q.query(ctx, sql, args)
}

// QueryRow runs a SELECT for one row; Scan reports [ErrNoRows] when there is none.
func (r Reader) QueryRow(ctx context.Context, sql string, args ...any) Row {
	return r.q.queryRow(ctx, sql, args)
}

// Collect reads all rows with scan and closes them. The query must limit the number of rows.
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
	queueHold(ctx context.Context, missing error, table, id string)
}

// Tx is one transaction. It is valid until the function that received it returns.
type Tx struct {
	Reader
	w         writer
	now       time.Time
	oneWriter bool
	after     []func()
	proof     *proof
	changes   int // number of statements that changed rows or were queued
}

// Query runs a SELECT, or a statement that changes rows and returns them.
func (t *Tx) Query(ctx context.Context, sql string, args ...any) (Rows, error) {
	t.mayChange(sql)
	return t.w.query(ctx, sql, args)
}

// QueryRow is like Query for one row. If there is no row, Scan returns [ErrNoRows].
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

// Queue runs a statement whose result is not needed. On PostgreSQL the statement travels with the next statement that
// needs an answer, at the latest with the commit, which reports its error. Statements keep their order.
func (t *Tx) Queue(ctx context.Context, sql string, args ...any) {
	t.changes++
	t.w.queue(ctx, sql, args)
}

// QueueOne queues an UPDATE or a DELETE that must change a row, such as one with a fence. If it changes none, the
// transaction fails with the error missing; on PostgreSQL it fails only when the statement's answer arrives.
func (t *Tx) QueueOne(ctx context.Context, missing error, sql string, args ...any) {
	t.changes++
	t.w.queueOne(ctx, missing, sql, args)
}

// QueueHold prevents the deletion of a row until the transaction ends. Another transaction that deletes the row waits,
// and then sees all changes of this transaction. If the row does not exist, the transaction fails as with QueueOne.
func (t *Tx) QueueHold(ctx context.Context, missing error, table, id string) {
	t.w.queueHold(ctx, missing, table, id)
}

// Now returns the time of this transaction by [DB.Now], read once, so that all its rows have the same time.
func (t *Tx) Now() time.Time { return t.now }

// OneWriter reports whether no other transaction can write while this one runs, as on SQLite. On PostgreSQL others can,
// so a SELECT of rows to claim needs FOR UPDATE SKIP LOCKED, which skips rows that another node is claiming.
func (t *Tx) OneWriter() bool { return t.oneWriter }

// Serialize makes transactions with the same name run one after another. It is for decisions that no index can make. On
// SQLite, which has one writer, it does nothing.
func (t *Tx) Serialize(ctx context.Context, name string) error {
	if t.oneWriter {
		return nil
	}
	_, err := t.w.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, []any{name})
	return err
}

// AfterCommit runs f after the transaction is on disk. It is for hints, such as waking a worker, because a crash loses
// them.
func (t *Tx) AfterCommit(f func()) { t.after = append(t.after, f) }

// proof is a query that finds a row if and only if a transaction was committed.
type proof struct {
	sql  string
	args []any
}

// Proof sets the query that decides whether the transaction was committed if the answer to its COMMIT is lost. The
// query must find a row if and only if the transaction was committed. The transaction must insert that row under a new
// id, and nothing may delete it within a minute. A transaction needs one proof; later calls are ignored.
func (t *Tx) Proof(sql string, args ...any) {
	if t.proof == nil {
		t.proof = &proof{sql, args}
	}
}

// engine contains the differences between the two databases.
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
	listen(ctx context.Context, topics []string, got func(topic, payload string)) error
	name() string
	places() int // the maximum number of simultaneous long reads
	readLong(ctx context.Context, fn func(querier) error) error
	close()
}

// DB is an open database. It is safe for concurrent use.
type DB struct {
	Reader
	e      engine
	log    *slog.Logger
	hints  hints
	beside bool
	wait   time.Duration // the longest wait for the database
	long   *fairshare.Turns

	together [classes]together
}

// Options are the parameters of [Open].
type Options struct {
	URL      string        // postgres://... or the path of an SQLite file
	MaxConns int           // connections to PostgreSQL, or readers of SQLite; 0 means a default
	Patience time.Duration // the longest wait for a connection to PostgreSQL and for each answer; 0 is 20 seconds
	Log      *slog.Logger
	Trace    func(Statement) // called with each statement; may be nil

	// Break reports whether a statement must fail. It is for tests, and nil otherwise.
	Break func(Statement) bool

	// Borrow makes Open use the connections of that database on PostgreSQL in place of URL, MaxConns and Patience. Close
	// leaves these connections open. It is for tests, and nil otherwise.
	Borrow *DB

	// Beside must be set if a node may be running on the same database. Commands set it. Close then sends this
	// process's hints to that node. Without Beside, Open checks an SQLite file that was not closed cleanly, for at most
	// a minute, and fails if it finds damage.
	Beside bool
}

// Open opens the database and checks that it answers. It does not migrate; see [DB.Migrate].
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
	d := &DB{Reader: Reader{e}, e: e, log: o.Log, beside: o.Beside, wait: o.Patience,
		long: newLong(e.places())}
	d.hints.init()
	return d, nil
}

// IsPostgres reports whether url names a PostgreSQL database rather than an SQLite file.
func IsPostgres(url string) bool {
	return strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://")
}

// Engine returns "sqlite" or "postgres".
func (d *DB) Engine() string { return d.e.name() }

// Alone reports whether only one node works on this database: true for SQLite. A command may still change rows while
// that node runs.
func (d *DB) Alone() bool { return d.e.name() == "sqlite" }

// Snapshot writes a consistent copy of an SQLite database to an empty file. Reads and writes continue in the meantime.
// On PostgreSQL it returns an error.
func (d *DB) Snapshot(ctx context.Context, to string) error {
	s, ok := d.e.(*sqliteDB)
	if !ok {
		return errors.New("only SQLite makes snapshots")
	}
	return s.snapshot(ctx, to)
}

// Close waits for Updates in progress and closes all connections. With [Options.Beside] it first sends pending hints,
// for at most 5 s.
func (d *DB) Close() {
	if d.beside {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		d.flushHints(ctx)
		cancel()
	}
	d.e.close()
}

// Ready returns an error if the database does not answer, or if PostgreSQL accepts no writes, as a standby. It does not
// check whether SQLite can write.
func (d *DB) Ready(ctx context.Context) error { return d.e.ready(ctx) }

// Update runs fn in a transaction. It returns nil after the commit is on disk. If it returns an error other than
// [ErrUnknown], nothing has changed.
func (d *DB) Update(ctx context.Context, fn func(*Tx) error) error {
	return d.e.update(ctx, withAddition(ctx, fn))
}

// UpdateApart is Update on a separate connection, for heartbeats, which must not wait for the rest of the process's
// work. Such updates must be few and small. On SQLite it equals Update, because the one writer never delays an update
// for long.
func (d *DB) UpdateApart(ctx context.Context, fn func(*Tx) error) error {
	return d.e.updateApart(ctx, fn)
}

// Repeat runs step in one transaction after another until one changes nothing. It is for work on many rows: each
// transaction handles a bounded number. step returns how many rows it changed, and must not find them again. An error
// ends Repeat; the caller may call it again later.
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

// Violates reports whether err is a violation of the unique index with that name.
func (d *DB) Violates(err error, index string) bool {
	name, ok := d.UniqueViolation(err)
	return ok && name == index
}

// Micros returns a time as it is stored: microseconds since 1970 UTC, or 0 for the zero time.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
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

// Now returns the present by this machine's clock, in UTC and whole microseconds, as the database stores it. Use
// [DB.Now] for times that are compared with those of other nodes.
func Now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// recovered calls fn and converts a panic to an error, so that SQLite's one writer continues to run.
func recovered(fn func(*Tx) error, t *Tx) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic in an update: %v\n%s", p, debug.Stack())
		}
	}()
	return fn(t)
}

// hints carries wake-ups between nodes. A lost hint delays work by at most a poll interval.
type hints struct {
	mu      sync.Mutex
	pending map[string]map[string]bool
	kick    chan struct{}
	subs    map[string][]func(payload string)
}

func (h *hints) init() {
	h.pending = map[string]map[string]bool{}
	h.subs = map[string][]func(string){}
	h.kick = make(chan struct{}, 1)
}

// Hint calls the subscribers of topic on every node with payload. It never blocks, and a hint may be lost.
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

// OnHint sets f to be called for each hint of topic from this node and, while [DB.Run] runs, from other processes. f
// must not block. Call OnHint before Run.
func (d *DB) OnHint(topic string, f func(payload string)) {
	d.hints.mu.Lock()
	defer d.hints.mu.Unlock()
	d.hints.subs[topic] = append(d.hints.subs[topic], f)
}

const (
	hintDelay = 10 * time.Millisecond // how long hints are collected before they are sent together
	closeTime = 5 * time.Second       // limits the sending of hints in Close
)

// Run sends hints to other processes, receives theirs, and reads the server's time, until ctx ends. The node of an
// SQLite file only receives, because no other process listens there. If listening fails, Run logs it and tries again
// every 2 s. On PostgreSQL the hints sent in between are lost.
func (d *DB) Run(ctx context.Context) error {
	h := &d.hints
	var topics []string
	h.mu.Lock()
	for t := range h.subs {
		topics = append(topics, t)
	}
	h.mu.Unlock()

	var wg sync.WaitGroup
	if !d.Alone() {
		wg.Go(func() { d.sendHints(ctx) })
	}
	wg.Go(func() { d.e.keepTime(ctx) })
	defer wg.Wait()
	for ctx.Err() == nil {
		err := d.e.listen(ctx, topics, func(topic, payload string) {
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

// packHints joins payloads with newlines into messages under PostgreSQL's limit of 8,000 bytes. It omits payloads above
// 4,000 bytes, and all after the eighth message: a node that receives that many hints looks for work anyway.
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

// isGone reports whether err means that the caller canceled or timed out, rather than that the database failed.
func isGone(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
