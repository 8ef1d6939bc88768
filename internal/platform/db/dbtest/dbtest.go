// Package dbtest runs tests on both engines. Each test has a new SQLite file, or a database on a temporary PostgreSQL
// server. The database is a copy of an empty, migrated database. A PostgreSQL database may also be reused: after a
// test, it is emptied for the next test.
//
// A package whose tests use dbtest contains this function:
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// Main stops the server that the first test started. If POSTRIDER_TEST_POSTGRES is a URL for connecting to an existing
// server as a superuser, tests use that server and do not start another. `make test` starts one server for all
// packages. If PostgreSQL's programs are missing, tests are not skipped; they fail with instructions for installing
// PostgreSQL.
//
// If POSTRIDER_TEST_POOLER is set, the databases of the helpers are reached through PgBouncer in transaction mode;
// `make pooler` sets this variable.
//
// If POSTRIDER_TEST_ENGINE is sqlite or postgres, tests for both engines run only on that engine. This variable is set
// by `make race` and by tools that run the tests very often. The test output names the engine.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// Main runs the package's tests and then stops the server that they started. If the system has an in-memory folder,
// Main keeps temporary files there, because syncing to disk took up half of the tests' run time. The environment
// variable TMPDIR can name another folder.
func Main(m *testing.M) {
	shared.ready = true
	switch only := os.Getenv(engineVariable); only {
	case "":
	case "sqlite", "postgres":
		fmt.Fprintf(os.Stderr, "%s=%s: no test runs on the other engine\n", engineVariable, only)
	default:
		fmt.Fprintf(os.Stderr, "%s is %q: set it to sqlite or postgres, or leave it out for both\n", engineVariable, only)
		os.Exit(2)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400) // a seventh of the processor time went into collecting garbage
	}
	memory := useMemory()
	code := m.Run()
	removeIdle()
	if shared.pooler != nil {
		shared.pooler.remove()
	}
	if shared.server != nil {
		shared.server.Remove()
	}
	for _, f := range shared.after {
		f()
	}
	if memory != nil {
		memory.remove()
	}
	os.Exit(code)
}

// After registers f to run when the tests have ended, before Main exits. Call After before Main.
func After(f func()) { shared.after = append(shared.after, f) }

// maxConns is the value of Options.MaxConns for a test's database.
const maxConns = 6

const engineVariable = "POSTRIDER_TEST_ENGINE"

// Each runs f as a subtest on each engine, with an empty migrated database.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	each(t, func(t *testing.T) { f(t, SQLite(t)) }, func(t *testing.T) { f(t, Postgres(t)) })
}

// each runs a subtest for each engine, or only for the engine that POSTRIDER_TEST_ENGINE names. If the function for an
// engine is nil, each skips that engine.
func each(t *testing.T, sqlite, postgres func(t *testing.T)) {
	t.Helper()
	only := os.Getenv(engineVariable)
	if only != "postgres" {
		t.Run("sqlite", sqlite)
	}
	if only != "sqlite" && postgres != nil {
		t.Run("postgres", postgres)
	}
}

// SQLite opens a new migrated database in a temporary folder for the test.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, SQLiteFile(t))
}

// SQLiteFile creates a migrated database in a temporary folder for the test and returns its path.
func SQLiteFile(t testing.TB) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.db")
	WriteSQLite(t, path)
	return path
}

// WriteSQLite writes a migrated database to a new file at path.
func WriteSQLite(t testing.TB, path string) {
	t.Helper()
	m, err := migratedFile()
	if err == nil {
		err = os.WriteFile(path, m.file, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// migratedFile returns an SQLite file with all migrations applied, and the types of its columns by "table.column".
var migratedFile = sync.OnceValues(func() (_ migrated, err error) {
	dir, err := os.MkdirTemp("", "dbtest")
	if err != nil {
		return migrated{}, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "test.db")
	d, err := db.Open(context.Background(), db.Options{URL: path})
	if err != nil {
		return migrated{}, err
	}
	defer d.Close()
	if _, err = d.Migrate(context.Background()); err != nil {
		return migrated{}, err
	}
	rows, err := d.Query(context.Background(), `SELECT m.name || '.' || p.name, p.type
		FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table'`)
	columns, err := db.Collect(rows, err, func(r db.Row) (c [2]string, err error) {
		err = r.Scan(&c[0], &c[1])
		return c, err
	})
	if err != nil {
		return migrated{}, err
	}
	m := migrated{types: map[string]string{}}
	for _, c := range columns {
		m.types[c[0]] = c[1]
	}
	d.Close() // writes everything to the file
	m.file, err = os.ReadFile(path)
	return m, err
})

// migrated is a migrated database on SQLite.
type migrated struct {
	file  []byte
	types map[string]string
}

// Open opens the migrated database at url and closes it when the test ends.
func Open(t testing.TB, url string) *db.DB {
	t.Helper()
	return open(t, throughPooler(db.Options{URL: url, MaxConns: maxConns, Log: slog.New(slog.DiscardHandler)}))
}

func open(t testing.TB, o db.Options) *db.DB {
	t.Helper()
	checkIDs(t, &o)
	d, err := db.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// Loosen replaces a SQLite table by a copy without types and constraints, so that a test can store values that cannot
// be read.
func Loosen(t *testing.T, d *db.DB, table string) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `CREATE TABLE loose AS SELECT * FROM `+table)
		tx.Queue(t.Context(), `DROP TABLE `+table)
		tx.Queue(t.Context(), `ALTER TABLE loose RENAME TO `+table)
		return nil
	})
	if err != nil {
		t.Fatalf("loosen %s: %v", table, err)
	}
}
