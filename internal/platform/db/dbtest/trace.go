package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Trace records the statements that a database runs.
type Trace struct {
	d  *db.DB
	mu sync.Mutex
	st []db.Statement
	// The left field is the number of statements that still run before one fails; -1 means that none fails. The broken
	// field contains the text of the statement that EachBroken made fail.
	left   int
	broken string

	before string // text that Before waits for
	act    func()
}

// EachTraced is like Each, with a trace of the SQL statements, on databases that no other test used.
func EachTraced(t *testing.T, f func(t *testing.T, d *db.DB, trace *Trace)) {
	t.Helper()
	run := func(t *testing.T, url string) {
		d, trace := traced(t, url)
		f(t, d, trace)
	}
	each(t, func(t *testing.T) { run(t, SQLiteFile(t)) }, func(t *testing.T) { run(t, newPostgresURL(t)) })
}

// SQLiteTraced is like EachTraced, but only on SQLite. Tests that break each statement in turn use SQLiteTraced,
// because a service handles failed statements in the same way on both engines. Tests in the db and jobs packages break
// statements on both engines.
func SQLiteTraced(t *testing.T, f func(t *testing.T, d *db.DB, trace *Trace)) {
	t.Helper()
	each(t, func(t *testing.T) {
		d, trace := traced(t, SQLiteFile(t))
		f(t, d, trace)
	}, nil)
}

// PostgresTraced is like Postgres, with a trace of the SQL statements.
func PostgresTraced(t *testing.T) (*db.DB, *Trace) {
	t.Helper()
	return traced(t, newPostgresURL(t))
}

// PostgresTracedAt is like PostgresTraced, on the database that url names.
func PostgresTracedAt(t *testing.T, url string) (*db.DB, *Trace) {
	t.Helper()
	return traced(t, url)
}

func traced(t *testing.T, url string) (*db.DB, *Trace) {
	t.Helper()
	return TracedWith(t, db.Options{URL: url})
}

// TracedWith opens a migrated database with the given options, and with a trace of the SQL statements.
func TracedWith(t *testing.T, o db.Options) (*db.DB, *Trace) {
	t.Helper()
	trace := &Trace{left: -1}
	o.MaxConns, o.Log, o.Trace, o.Break = maxConns, slog.New(slog.DiscardHandler), trace.Record, trace.Break
	trace.d = open(t, o)
	return trace.d, trace
}

// SetDB sets the database of the trace. Callers use SetDB if they open the database themselves, with Record as
// Options.Trace.
func (tr *Trace) SetDB(d *db.DB) { tr.d = d }

// Record stores a statement. The database calls Record as Options.Trace.
func (tr *Trace) Record(s db.Statement) {
	tr.mu.Lock()
	tr.st = append(tr.st, s)
	var act func()
	if tr.act != nil && strings.Contains(s.SQL, tr.before) {
		act, tr.act = tr.act, nil
	}
	tr.mu.Unlock()
	if act != nil {
		act()
	}
}

// Before calls act once, immediately before the next statement that contains the given text. If act writes to an SQLite
// database, the statement that contains the text must not be part of a transaction.
func (tr *Trace) Before(text string, act func()) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.before, tr.act = text, act
}

// Break reports whether a statement must fail. The database calls Break as Options.Break.
func (tr *Trace) Break(s db.Statement) bool {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if tr.left == 0 {
		tr.broken = s.SQL
	}
	if tr.left >= 0 {
		tr.left--
	}
	return tr.broken == s.SQL
}

// EachBroken calls the act function repeatedly until every statement in act has failed once. In each call, a different
// statement fails as if a table were missing. If a statement fails, act must return an error for which fault.Ours is
// true, unless the statement contains one of the strings in mayFail. The prepare function runs before each call to act,
// and check runs after each call. EachBroken does not break statements in prepare or check. The prepare and check
// functions may be nil.
func (tr *Trace) EachBroken(t testing.TB, prepare func(), act func() error, check func(err error), mayFail ...string,
) (failed int) {
	t.Helper()
	const most = 200
	for n := range most {
		if prepare != nil {
			prepare()
		}
		tr.set(n)
		err := act()
		broken := tr.set(-1)
		if check != nil {
			check(err)
		}
		may := slices.ContainsFunc(mayFail, func(text string) bool { return strings.Contains(broken, text) })
		switch {
		case broken == "":
			if err != nil {
				t.Errorf("it fails without a statement broken: %v", err)
			}
			return failed
		case err != nil:
			failed++
			if !fault.Ours(err) {
				t.Errorf("it is held against the caller that this statement is broken: %s: %v", broken, err)
			}
		case !may:
			t.Errorf("it does not fail with this statement broken: %s", broken)
		}
	}
	t.Errorf("it takes more than %d statements", most)
	return failed
}

// set lets the given number of statements run and makes the next one fail; if left is -1, no statement fails. The set
// method returns the text of the statement that has failed since the last call to set.
func (tr *Trace) set(left int) (broken string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	broken = tr.broken
	tr.left, tr.broken = left, ""
	return broken
}

// Take returns the statements that were recorded since the last call to Take.
func (tr *Trace) Take() []db.Statement {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	all := tr.st
	tr.st = nil
	return all
}

// TakeAll is like Take, but the result also contains the statements with lists that PostgreSQL receives if a
// transaction changes several rows.
func (tr *Trace) TakeAll() []db.Statement {
	all := tr.Take()
	if tr.d.Engine() == "postgres" {
		for _, s := range all {
			if s.List != nil {
				all = append(all, *s.List)
			}
		}
	}
	return all
}

// Plan returns the database's plan for a statement.
func (tr *Trace) Plan(t testing.TB, s db.Statement) string {
	t.Helper()
	if tr.d.Engine() == "postgres" {
		return tr.explained(t, "EXPLAIN ", s)
	}
	return tr.explained(t, "EXPLAIN QUERY PLAN ", s)
}

func (tr *Trace) explained(t testing.TB, explain string, s db.Statement) string {
	t.Helper()
	var b strings.Builder
	err := tr.d.Update(t.Context(), func(tx *db.Tx) error {
		b.Reset()
		if tr.d.Engine() == "postgres" {
			for _, off := range []string{"enable_seqscan", "enable_bitmapscan"} {
				if _, err := tx.Exec(t.Context(), "SET LOCAL "+off+" = off"); err != nil {
					return err
				}
			}
		}
		return tr.explain(t.Context(), tx, &b, explain, s)
	})
	if err != nil {
		t.Fatalf("explain %s: %v", s.SQL, err)
	}
	tr.Take()
	return b.String()
}

func (tr *Trace) explain(ctx context.Context, tx *db.Tx, b *strings.Builder, explain string, s db.Statement) error {
	depth := map[int64]int{}
	rows, err := tx.Query(ctx, explain+s.SQL, s.Args...)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var line string
		if tr.d.Engine() == "postgres" {
			err = r.Scan(&line)
		} else {
			var step, parent, unused int64
			err = r.Scan(&step, &parent, &unused, &line)
			depth[step] = depth[parent] + 1
			line = strings.Repeat("  ", depth[parent]) + line
		}
		fmt.Fprintln(b, line)
		return none, err
	})
	return err
}
