package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/db"
)

// Trace keeps the statements that a database is asked.
type Trace struct {
	d  *db.DB
	mu sync.Mutex
	st []db.Statement
}

// EachTraced is Each with a trace of what the database is asked.
func EachTraced(t *testing.T, f func(t *testing.T, d *db.DB, trace *Trace)) {
	t.Helper()
	run := func(t *testing.T, url string) {
		trace := &Trace{}
		trace.d = open(t, db.Options{URL: url, MaxConns: 6, Log: slog.New(slog.DiscardHandler), Trace: trace.Tell})
		f(t, trace.d, trace)
	}
	each(t, func(t *testing.T) { run(t, filepath.Join(t.TempDir(), "test.db")) },
		func(t *testing.T) { run(t, PostgresURL(t)) })
}

// Of says whose statements these are, for a database that somebody else opens, with Tell as its Trace.
func (tr *Trace) Of(d *db.DB) { tr.d = d }

// Tell adds a statement.
func (tr *Trace) Tell(s db.Statement) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.st = append(tr.st, s)
}

// Take returns the statements since it was called last.
func (tr *Trace) Take() []db.Statement {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	all := tr.st
	tr.st = nil
	return all
}

// Plan is how the database would run a statement, as it explains it. PostgreSQL would read small tables whole and is
// kept from it.
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
	rows, err := tx.Query(ctx, explain+s.SQL, s.Args...)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var line string
		if tr.d.Engine() == "postgres" {
			err = r.Scan(&line)
		} else {
			var a, b, c int64
			err = r.Scan(&a, &b, &c, &line)
		}
		fmt.Fprintln(b, line)
		return none, err
	})
	return err
}
