// Package dbtest runs tests on both engines: on a new SQLite file, and on a new schema of a temporary PostgreSQL
// server.
//
// A package whose tests use it has
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// which stops the server that the first test started. When POSTRIDER_TEST_POSTGRES is the URL of a superuser of a
// server, that server is used instead. When PostgreSQL's programs are missing, tests fail and say how to get them; no
// test is skipped.
//
// When POSTRIDER_TEST_ENGINE is sqlite or postgres, tests that would run on each engine run on that one only, for
// tools that run the tests very often. The output says so.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Main runs the package's tests and then stops the server that they started.
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
	code := m.Run()
	if shared.server != nil {
		shared.server.remove()
	}
	for _, f := range shared.after {
		f()
	}
	os.Exit(code)
}

// After makes f run when the tests are over, before Main exits. Call it before Main.
func After(f func()) { shared.after = append(shared.after, f) }

const engineVariable = "POSTRIDER_TEST_ENGINE"

// Each runs f as a subtest on each engine, with an empty migrated database.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	each(t, func(t *testing.T) { f(t, SQLite(t)) }, func(t *testing.T) { f(t, Postgres(t)) })
}

// each runs a subtest for each engine, or for the one that POSTRIDER_TEST_ENGINE names.
func each(t *testing.T, sqlite, postgres func(t *testing.T)) {
	t.Helper()
	only := os.Getenv(engineVariable)
	if only != "postgres" {
		t.Run("sqlite", sqlite)
	}
	if only != "sqlite" {
		t.Run("postgres", postgres)
	}
}

// SQLite opens a new database in a temporary folder of the test.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	file, err := migratedFile()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.db")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return Open(t, path)
}

// migratedFile is an SQLite file without rows. Each test begins with a copy of it, because to write a file costs little
// of what the migrations cost.
var migratedFile = sync.OnceValues(func() (_ []byte, err error) {
	dir, err := os.MkdirTemp("", "dbtest")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	path := filepath.Join(dir, "test.db")
	d, err := db.Open(context.Background(), db.Options{URL: path})
	if err != nil {
		return nil, err
	}
	_, err = d.Migrate(context.Background())
	d.Close()
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// Postgres opens a new schema on the temporary server.
func Postgres(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, PostgresURL(t))
}

// Open opens and migrates the database at url and closes it with the test.
func Open(t testing.TB, url string) *db.DB {
	t.Helper()
	return open(t, db.Options{URL: url, MaxConns: 6, Log: slog.New(slog.DiscardHandler)})
}

func open(t testing.TB, o db.Options) *db.DB {
	t.Helper()
	d, err := db.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if _, err := d.Migrate(context.Background()); err != nil {
		t.Fatal(err)
	}
	return d
}

// PostgresURL creates an empty schema and returns a URL whose search path it is. The schema is dropped when the test
// ends.
func PostgresURL(t testing.TB) string {
	t.Helper()
	base := start(t)
	ctx := context.Background()
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		t.Fatalf("connect to the test's PostgreSQL: %v", err)
	}
	defer c.Close(ctx)
	schema := "t_" + strings.ReplaceAll(id.New(), "-", "")
	if _, err := c.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if c, err := pgx.Connect(ctx, base); err == nil {
			c.Exec(ctx, "DROP SCHEMA "+schema+" CASCADE")
			c.Close(ctx)
		}
	})
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// shared is the one server of a test binary.
var shared struct {
	ready  bool
	once   sync.Once
	url    string
	err    error
	server *Server
	after  []func()
}

func start(t testing.TB) string {
	t.Helper()
	if !shared.ready {
		t.Fatal("dbtest: the package needs func TestMain(m *testing.M) { dbtest.Main(m) }")
	}
	shared.once.Do(func() {
		if shared.url = os.Getenv("POSTRIDER_TEST_POSTGRES"); shared.url == "" {
			if shared.server, shared.err = launch(""); shared.err == nil {
				shared.url = shared.server.URL
			}
		}
	})
	if shared.err != nil {
		t.Fatalf("%v\nInstall PostgreSQL's server (`make deps` does), or set POSTRIDER_TEST_POSTGRES to a server's URL.",
			shared.err)
	}
	return shared.url
}
