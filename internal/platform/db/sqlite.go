package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/postrider/postrider/internal/lib/fileperm"
)

const (
	groupMax   = 256                  // maximum number of updates that share one commit
	groupTime  = 8 * time.Millisecond // a group that has run for this long accepts no more updates
	queueDepth = 1024                 // maximum number of waiting updates; additional callers block
)

// pragmas are the PRAGMA settings for both handles (the writer and the readers). The pragmas are in the DSN, because a
// PRAGMA statement sent to a pool affects only one connection.
var pragmas = []string{
	"busy_timeout(10000)", // busy_timeout comes first, because other pragmas may wait for a lock
	// Two pages hold the body of a typical email. The size applies to a new file, before it gets its write-ahead log. The
	// driver would sort two entries by name. With the log, readers never wait for the writer.
	"page_size(8192); PRAGMA journal_mode(WAL)",
	"synchronous(FULL)",        // a COMMIT returns only when it is on disk
	"foreign_keys(1)",          // SQLite must check foreign keys, as PostgreSQL does
	"temp_store(MEMORY)",       // sorting does not create temporary files
	"wal_autocheckpoint(2000)", // a checkpoint, which delays commits, runs after every 16 MB of log
	"journal_size_limit(67108864)",
}

// sqliteDB has one connection for writes and a pool of connections for reads.
type sqliteDB struct {
	path    string
	observe UpdateObserver // may be nil
	beside  bool           // whether a node may be running on the same file
	marked  bool           // whether the file was closed cleanly, or is new
	fresh   bool

	read   *sql.DB
	stmts  stmtCache
	short  *groupedReads
	write  *sql.DB
	conn   *sql.Conn // the one writer
	wstmts stmtCache // queries of the writer
	cstmts stmtCache // changes of the writer

	queue  chan *pendingUpdate
	closed chan struct{}
	done   chan struct{}
	once   sync.Once
	frozen atomic.Bool // whether updates fail (see DB.Freeze)
	writes writeCheck

	mu      sync.Mutex
	indexes map[string]string // "table.a, table.b" -> name of the unique index over them
}

type pendingUpdate struct {
	ctx   context.Context
	began time.Time // zero until the writer runs it
	fn    func(*Tx) error
	after []func()
	err   error
	wrote bool // whether it stored something, if the group is committed
	done  chan struct{}
}

func openSQLite(ctx context.Context, o Options) (*sqliteDB, error) {
	path := strings.TrimPrefix(o.URL, "sqlite://")
	s := &sqliteDB{path: path, observe: o.OnUpdate, beside: o.Beside, fresh: isFresh(path),
		queue:  make(chan *pendingUpdate, queueDepth),
		closed: make(chan struct{}), done: make(chan struct{}), writes: writeCheck{began: time.Now()}}
	s.marked = s.fresh || closedInOrder(path)
	if err := prepareFile(path); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", path, err)
	}
	if err := s.connect(ctx, o); err != nil {
		return nil, err
	}
	if !o.Beside {
		err := os.Remove(stopMark(path))
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		if err == nil && !s.marked {
			err = s.check(ctx, path, o.Log)
		}
		if err != nil {
			s.disconnect()
			return nil, err
		}
	}
	go s.run()
	return s, nil
}

// open opens another handle to the file, with the usual pragmas and the pragmas in extra.
func (s *sqliteDB) open(extra ...string) (*sql.DB, error) {
	q := url.Values{}
	for _, p := range append(append([]string{}, pragmas...), extra...) {
		q.Add("_pragma", p)
	}
	q.Set("_txlock", "immediate")
	return sql.Open("sqlite", "file:"+(&url.URL{Path: s.path}).EscapedPath()+"?"+q.Encode())
}

// connect opens the writer and the readers.
func (s *sqliteDB) connect(ctx context.Context, o Options) (err error) {
	defer func() {
		if err != nil {
			s.disconnect()
		}
	}()
	if s.write, err = s.open("cache_size(-16384)"); err != nil {
		return fmt.Errorf("open %s: %w", s.path, err)
	}
	s.write.SetMaxOpenConns(1)
	if s.conn, err = s.write.Conn(ctx); err != nil {
		return fmt.Errorf("open the database for writing: %w", damaged(s.path, err))
	}
	if s.read, err = s.open("query_only(1)", "cache_size(-8192)"); err != nil {
		return fmt.Errorf("open %s: %w", s.path, err)
	}
	readers := o.MaxConns
	if readers <= 0 {
		readers = max(4, 2*runtime.GOMAXPROCS(0))
	}
	s.read.SetMaxOpenConns(readers)
	s.read.SetMaxIdleConns(readers)
	s.stmts.prepare, s.wstmts.prepare = s.read.PrepareContext, s.conn.PrepareContext
	s.cstmts.changes = &changes{conn: s.conn}
	if err = s.read.PingContext(ctx); err != nil {
		return fmt.Errorf("open the database for reading: %w", damaged(s.path, err))
	}
	short, err := s.open("query_only(1)", "cache_size(-8192)")
	if err != nil {
		return fmt.Errorf("open %s: %w", s.path, err)
	}
	s.short = newGroupedReads(short)
	return nil
}

// disconnect closes the readers and then the writer. When the last connection closes, it copies the write-ahead log
// into the file. If the last connection is a reader or has open statements, the log cannot be copied.
func (s *sqliteDB) disconnect() {
	if s.short != nil {
		s.short.stop()
	}
	s.stmts.close()
	s.wstmts.close()
	s.cstmts.close()
	if s.read != nil {
		s.read.Close()
	}
	if s.conn != nil {
		s.conn.Close()
	}
	if s.write != nil {
		s.write.Close()
	}
}

// prepareFile creates the database file with private permissions, because SQLite would make the file readable by all
// users. The permissions of files from an earlier run are corrected. SQLite creates its other files with the mode of
// the database file. A new folder for the database is made private; an existing folder may be shared, so its
// permissions stay unchanged.
func prepareFile(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make the folder of the database: %w", err)
	}
	if err := fileperm.File(path); err != nil {
		return err
	}
	for _, more := range []string{"-wal", "-shm", "-journal"} {
		if err := fileperm.Mend(path + more); err != nil {
			return err
		}
	}
	return nil
}

func (s *sqliteDB) name() string { return "sqlite" }

// places returns the maximum number of simultaneous long reads: half of the readers.
func (s *sqliteDB) places() int { return s.read.Stats().MaxOpenConnections / 2 }

func (s *sqliteDB) readRow(ctx context.Context, q *RowQuery, dest, args []any) error {
	return s.short.read(ctx, func(r querier) error { return r.queryRow(ctx, q.one, args).Scan(dest...) })
}

func (s *sqliteDB) readLong(_ context.Context, fn func(querier) error) error {
	return fn(wholeReads{s})
}

// wholeReads reads all rows of a query before it returns the first row. The driver can interrupt a statement only until
// the statement returns its first row. If matching rows are rare, the search for the next row could block a reader for
// minutes.
type wholeReads struct{ *sqliteDB }

func (w wholeReads) query(ctx context.Context, text string, args []any) (Rows, error) {
	return w.sqliteDB.query(ctx, "WITH whole AS MATERIALIZED ("+text+") SELECT * FROM whole", args)
}

func (s *sqliteDB) close() {
	s.once.Do(func() {
		close(s.closed)
		<-s.done
		// A starting node removes the stop mark.
		mark := !s.beside || s.marked && (s.fresh || fileperm.Exists(stopMark(s.path)))
		s.disconnect()
		if mark {
			markStopped(s.path)
		}
	})
}

// update adds fn to the writer's queue and waits for its commit. The wait continues even if ctx ends, because otherwise
// the caller would not know the outcome.
func (s *sqliteDB) update(ctx context.Context, fn func(*Tx) error) error {
	if s.frozen.Load() {
		return unavailable("update", errFrozen)
	}
	return s.enqueue(ctx, fn)
}

func (s *sqliteDB) enqueue(ctx context.Context, fn func(*Tx) error) error {
	u := &pendingUpdate{ctx: ctx, fn: fn, done: make(chan struct{})}
	if s.observe != nil {
		queued := time.Now()
		defer func() { s.observeUpdate(queued, u) }()
	}
	select {
	case s.queue <- u:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.closed:
		return unavailable("update", errors.New("the database is closed"))
	}
	select {
	case <-u.done:
	case <-s.done:
		select {
		case <-u.done:
		default:
			return unavailable("update", errors.New("the database is closed"))
		}
	}
	if u.err == nil {
		for _, f := range u.after {
			f()
		}
	}
	return u.err
}

// updateApart is the same as update, because the writer never delays an update for long.
func (s *sqliteDB) updateApart(ctx context.Context, fn func(*Tx) error) error {
	return s.update(ctx, fn)
}

// run is the writer goroutine. The writer commits, in one transaction, all updates that were queued during the previous
// commit; no timer is used. Before a commit, the goroutines that are ready to run get a turn.
func (s *sqliteDB) run() {
	defer close(s.done)
	group := make([]*pendingUpdate, 0, groupMax)
	for {
		select {
		case u := <-s.queue:
			group = append(group[:0], u)
		case <-s.closed:
			select {
			case u := <-s.queue:
				group = append(group[:0], u)
			default:
				return
			}
		}
		s.commitGroup(group)
	}
}

// commitGroup runs a group of updates, and the updates that are queued in the meantime, in one transaction.
func (s *sqliteDB) commitGroup(group []*pendingUpdate) {
	ctx := context.Background()
	start := time.Now()
	if err := s.begin(ctx); err != nil {
		s.finish(group, unavailable("begin", err))
		return
	}
	for i := 0; i < len(group); i++ {
		if fatal := s.runOne(ctx, group[i]); fatal != nil {
			s.conn.ExecContext(ctx, "ROLLBACK")
			s.finish(group, unavailable("update", fatal))
			return
		}
		if len(group) < groupMax && time.Since(start) < groupTime {
			if i == len(group)-1 && len(s.queue) == 0 {
				// Goroutines that are ready to run may queue updates first, because each commit has a fixed cost. On an idle
				// node, Gosched returns at once.
				runtime.Gosched()
			}
			select {
			case u := <-s.queue:
				group = append(group, u)
			default:
			}
		}
	}
	if err := s.raw(ctx, "COMMIT"); err != nil {
		s.conn.ExecContext(ctx, "ROLLBACK")
		s.finish(group, commitError(err))
		return
	}
	s.finish(group, nil)
}

// begin begins a transaction. If the previous transaction could not be rolled back because the disk failed, begin first
// rolls it back.
func (s *sqliteDB) begin(ctx context.Context) error {
	err := s.raw(ctx, "BEGIN IMMEDIATE")
	if err == nil {
		return nil
	}
	if _, rolled := s.conn.ExecContext(ctx, "ROLLBACK"); rolled != nil {
		return err
	}
	_, err = s.conn.ExecContext(ctx, "BEGIN IMMEDIATE")
	return err
}

// commitError returns the error for a COMMIT that failed and was rolled back. Readers never see a transaction that was
// rolled back. If the disk failed during the COMMIT, the log may contain the whole transaction. The recovery after a
// crash would then restore it, unless another commit came first.
func commitError(err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok && leavesDoubt(e.Code()) {
		return unknown("commit", err)
	}
	return unavailable("commit", err)
}

// leavesDoubt reports whether a COMMIT that failed with a result code may have written the whole transaction.
func leavesDoubt(code int) bool { return code&0xff == lib.SQLITE_IOERR }

// runOne runs one update in a savepoint and stores the update's error in u.err. If runOne returns an error, the whole
// group fails.
func (s *sqliteDB) runOne(ctx context.Context, u *pendingUpdate) error {
	if err := u.ctx.Err(); err != nil {
		u.err = err
		return nil
	}
	u.began = time.Now()
	if err := s.raw(ctx, "SAVEPOINT u"); err != nil {
		return err
	}
	w := &sqliteTx{s: s}
	t := &Tx{Reader: Reader{w}, w: w, now: Now(), oneWriter: true}
	if u.err = recovered(u.fn, t); u.err == nil {
		w.flush(ctx)
	}
	if w.err != nil {
		u.err = w.err
	}
	if u.err != nil {
		// If the disk is full or the file is damaged, SQLite rolls back the whole transaction, including the savepoint.
		if err := s.raw(ctx, "ROLLBACK TO u"); err != nil {
			return errors.Join(u.err, err)
		}
	} else {
		u.after, u.wrote = t.after, w.stores
	}
	return s.raw(ctx, "RELEASE u")
}

// finish ends the updates of a group that was committed, or that failed with err.
func (s *sqliteDB) finish(group []*pendingUpdate, err error) {
	wrote, failed := false, err != nil
	for _, u := range group {
		failed = failed || u.err != nil && errors.Is(u.err, ErrUnavailable)
		wrote = wrote || u.wrote
	}
	if failed {
		s.writes.failed()
	} else if wrote {
		s.writes.succeeded()
	}
	for _, u := range group {
		if err != nil && u.err == nil {
			u.err = err
		}
		close(u.done)
	}
}

func (s *sqliteDB) raw(ctx context.Context, text string) error {
	_, err := s.cstmts.exec(ctx, text, nil)
	return err
}

// sqliteTx is a savepoint on the writer. The statements of a sqliteTx run without the caller's context, because
// interrupting a statement would roll back every update that shares the commit.
type sqliteTx struct {
	s      *sqliteDB
	err    error      // the error of the first queued statement that failed
	rows   []*rowList // rows to insert before the next other statement, see queueRow
	stores bool       // whether a statement has changed rows
}

func (t *sqliteTx) exec(ctx context.Context, text string, args []any) (int64, error) {
	if t.flush(ctx); t.err != nil {
		return 0, t.err
	}
	n, err := t.s.cstmts.exec(context.WithoutCancel(ctx), text, args)
	t.stores = t.stores || n > 0
	return n, err
}

func (t *sqliteTx) queue(ctx context.Context, text string, args []any) {
	if _, err := t.exec(ctx, text, args); err != nil && t.err == nil {
		t.err = err
	}
}

func (t *sqliteTx) queueOne(ctx context.Context, missing error, text string, args []any) {
	n, err := t.exec(ctx, text, args)
	if err == nil && n == 0 {
		err = missing
	}
	if err != nil && t.err == nil {
		t.err = err
	}
}

func (s *sqliteDB) partitions() *parts { return nil }

func (t *sqliteTx) queueRow(ctx context.Context, missing error, s *RowStatement, args []any) {
	switch {
	case s.inserts:
		t.addRow(ctx, s, args)
	case missing == nil:
		t.queue(ctx, s.one, args)
	default:
		t.queueOne(ctx, missing, s.one, args)
	}
}

// queueHold only checks that the row exists. SQLite needs no row lock, because it has only one writer.
func (t *sqliteTx) queueHold(ctx context.Context, missing error, table string, id any) {
	var one int
	err := t.queryRow(ctx, `SELECT 1 FROM `+table+` WHERE id = $1`, []any{id}).Scan(&one)
	if errors.Is(err, ErrNoRows) {
		err = missing
	}
	if err != nil && t.err == nil {
		t.err = err
	}
}

func (t *sqliteTx) query(ctx context.Context, text string, args []any) (Rows, error) {
	if t.flush(ctx); t.err != nil {
		return nil, t.err
	}
	return t.s.wstmts.query(context.WithoutCancel(ctx), text, args)
}

func (t *sqliteTx) queryRow(ctx context.Context, text string, args []any) Row {
	if t.flush(ctx); t.err != nil {
		return failedRow{t.err}
	}
	return t.s.wstmts.queryRow(context.WithoutCancel(ctx), text, args)
}

func (s *sqliteDB) query(ctx context.Context, text string, args []any) (Rows, error) {
	rows, err := s.stmts.query(ctx, text, args)
	if err != nil {
		return nil, readError(err)
	}
	return rows, nil
}

func (s *sqliteDB) queryRow(ctx context.Context, text string, args []any) Row {
	return s.stmts.queryRow(ctx, text, args)
}

func readError(err error) error {
	if isGone(err) {
		return err
	}
	return fmt.Errorf("query: %w", err)
}

// sqliteError converts temporary failures (of the disk, memory or locks) to Unavailable faults. All other errors, such
// as an invalid statement or a damaged file, are returned unchanged.
func sqliteError(what string, err error) error {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return err
	}
	switch e.Code() & 0xff {
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_NOMEM, lib.SQLITE_IOERR, lib.SQLITE_FULL, lib.SQLITE_CANTOPEN,
		lib.SQLITE_PROTOCOL:
		return unavailable(what, err)
	}
	return err
}

type failedRow struct{ err error }

func (r failedRow) Scan(...any) error { return r.err }

// unique parses the column names in SQLite's error message and looks up the unique index on these columns. SQLite's
// message names an index only if the index is on an expression.
func (s *sqliteDB) unique(err error) (string, bool) {
	e, ok := errors.AsType[*sqlite.Error](err)
	if !ok {
		return "", false
	}
	if c := e.Code(); c != lib.SQLITE_CONSTRAINT_UNIQUE && c != lib.SQLITE_CONSTRAINT_PRIMARYKEY {
		return "", false
	}
	_, cols, _ := strings.Cut(e.Error(), "UNIQUE constraint failed: ")
	cols, _, _ = strings.Cut(cols, " (")
	if name, ok := strings.CutPrefix(cols, "index '"); ok {
		return strings.TrimSuffix(name, "'"), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.indexes[cols] == "" {
		s.indexes = s.loadIndexes()
	}
	return s.indexes[cols], true
}

func (s *sqliteDB) loadIndexes() map[string]string {
	m := map[string]string{}
	rows, err := s.read.Query(`SELECT t.name, l.name, i.name FROM sqlite_master t, pragma_index_list(t.name) l,
		pragma_index_info(l.name) i WHERE t.type = 'table' AND l."unique" = 1 ORDER BY t.name, l.name, i.seqno`)
	if err != nil {
		return m
	}
	defer rows.Close()
	cols := map[string][]string{}
	table := map[string]string{}
	for rows.Next() {
		var t, index string
		var col sql.NullString
		if rows.Scan(&t, &index, &col) != nil {
			return m
		}
		if strings.HasPrefix(index, "sqlite_autoindex_") {
			index = t + "_pkey" // PostgreSQL's name for a primary key's index
		}
		table[index] = t
		cols[index] = append(cols[index], t+"."+col.String)
	}
	for index, c := range cols {
		m[strings.Join(c, ", ")] = index
	}
	return m
}

// migrate calls the run function with a transaction on the writer connection.
func (s *sqliteDB) migrate(ctx context.Context, run func(writer) error) error {
	return s.update(ctx, func(t *Tx) error { return run(t.w) })
}
