// Package dbtest runs a test on both engines: a fresh SQLite file, and a fresh schema of a throwaway PostgreSQL server.
//
// A package whose tests use it has
//
//	func TestMain(m *testing.M) { dbtest.Main(m) }
//
// which stops the server that the first test started. With POSTRIDER_TEST_POSTGRES set to a URL of a superuser, that
// server is used instead. Where PostgreSQL's binaries are missing, tests fail and say how to get them; nothing is
// skipped.
package dbtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/id"
)

// Main runs the package's tests and then stops the server that they started.
func Main(m *testing.M) {
	shared.ready = true
	code := m.Run()
	shared.stop()
	for _, f := range shared.after {
		f()
	}
	os.Exit(code)
}

// After has f run when the tests are over, before Main exits. Call it before Main.
func After(f func()) { shared.after = append(shared.after, f) }

// Each runs f as a subtest on each engine, with an empty database that is migrated.
func Each(t *testing.T, f func(t *testing.T, d *db.DB)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// SQLite opens a fresh database in a folder of the test.
func SQLite(t testing.TB) *db.DB {
	t.Helper()
	return Open(t, filepath.Join(t.TempDir(), "test.db"))
}

// Postgres opens a fresh schema on the throwaway server.
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

// PostgresURL makes an empty schema, dropped with the test, and returns a URL that works in it.
func PostgresURL(t testing.TB) string {
	t.Helper()
	base := shared.start(t)
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
var shared server

type server struct {
	ready bool
	once  sync.Once
	url   string
	err   error
	cmd   *exec.Cmd
	dir   string
	after []func()
}

func (s *server) start(t testing.TB) string {
	t.Helper()
	if !s.ready {
		t.Fatal("dbtest: the package needs func TestMain(m *testing.M) { dbtest.Main(m) }")
	}
	s.once.Do(func() {
		if s.url = os.Getenv("POSTRIDER_TEST_POSTGRES"); s.url == "" {
			s.url, s.err = s.launch()
		}
	})
	if s.err != nil {
		t.Fatalf("%v\nInstall PostgreSQL's server (`make deps` does), or set POSTRIDER_TEST_POSTGRES to a server's URL.", s.err)
	}
	return s.url
}

// launch makes a cluster in a temporary folder and starts a server that listens on a free port of the loopback address.
func (s *server) launch() (string, error) {
	bin, err := binaries()
	if err != nil {
		return "", err
	}
	if s.dir, err = os.MkdirTemp("", "postrider-pg-"); err != nil {
		return "", err
	}
	attr := &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}
	if os.Getuid() == 0 {
		uid, gid, err := unprivileged()
		if err != nil {
			return "", err
		}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return "", err
		}
		attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	data := filepath.Join(s.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: attr.Credential}
	initdb.Dir = s.dir
	if out, err := initdb.CombinedOutput(); err != nil {
		return "", fmt.Errorf("initdb: %w: %s", err, out)
	}
	port, err := freePort()
	if err != nil {
		return "", err
	}
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-c", "max_connections=200", "-c", "shared_buffers=64MB",
		"-c", "log_min_messages=fatal")
	s.cmd.SysProcAttr = attr
	s.cmd.Dir = s.dir
	var log strings.Builder
	s.cmd.Stderr = &log
	if err := s.cmd.Start(); err != nil {
		return "", fmt.Errorf("start postgres: %w", err)
	}
	u := fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", port)
	if err := waitFor(u); err != nil {
		s.stop()
		return "", fmt.Errorf("postgres did not answer: %w: %s", err, log.String())
	}
	return u, nil
}

func (s *server) stop() {
	if s.cmd != nil && s.cmd.Process != nil {
		s.cmd.Process.Signal(syscall.SIGQUIT) // at once: nothing of it is kept
		s.cmd.Wait()
	}
	if s.dir != "" {
		os.RemoveAll(s.dir)
	}
}

func waitFor(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		c, err := pgx.Connect(ctx, url)
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// binaries finds the folder of PostgreSQL's server programs: in PATH, or where Debian puts them, newest first.
func binaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(p), nil
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.Reverse(dirs)
	if len(dirs) == 0 {
		return "", errors.New("found no initdb, neither in PATH nor in /usr/lib/postgresql")
	}
	return filepath.Dir(dirs[0]), nil
}

// unprivileged finds a user to run the server as, since it refuses to run as root.
func unprivileged() (uid, gid int, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		if u, e := user.Lookup(name); e == nil {
			uid, _ = strconv.Atoi(u.Uid)
			gid, _ = strconv.Atoi(u.Gid)
			return uid, gid, nil
		}
	}
	return 0, 0, errors.New("PostgreSQL does not run as root, and there is neither a user postgres nor nobody")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
