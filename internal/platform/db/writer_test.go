package db

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"testing"

	lib "modernc.org/sqlite/lib"
)

// SQLite's writer continues after a transaction that could be neither committed nor rolled back.
func TestWriterEndsWhatWasLeft(t *testing.T) {
	d, err := Open(t.Context(), Options{URL: filepath.Join(t.TempDir(), "test.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if _, err := d.e.(*sqliteDB).conn.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := d.Update(t.Context(), func(*Tx) error { return nil }); err != nil {
			t.Error(err)
		}
	}
}

// A limit that is a parameter is passed to SQLite as an expression.
func TestLimitsAreExpressions(t *testing.T) {
	var prepared string
	c := stmtCache{prepare: func(_ context.Context, text string) (*sql.Stmt, error) {
		prepared = text
		return nil, errors.New("not prepared")
	}}
	c.get(t.Context(), "SELECT id FROM things WHERE id = ANY($1) LIMIT\n$12 OFFSET $3", []any{[]string{"a"}})
	if want := "SELECT id FROM things WHERE id = $1 LIMIT CAST($12 AS INTEGER) OFFSET $3"; prepared != want {
		t.Errorf("prepared %q", prepared)
	}
}

// If a COMMIT fails on a full disk, the log lacks the end of the transaction. If only the sync of the log fails, the
// log may contain the whole transaction.
func TestCommitsInDoubt(t *testing.T) {
	for code, want := range map[int]bool{lib.SQLITE_IOERR_FSYNC: true, lib.SQLITE_IOERR: true, lib.SQLITE_FULL: false,
		lib.SQLITE_BUSY:                  false,
		lib.SQLITE_CONSTRAINT_FOREIGNKEY: false} {
		if got := leavesDoubt(code); got != want {
			t.Errorf("result code %d: %v, want %v", code, got, want)
		}
	}
}
