package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// Postgres opens an empty migrated database on the shared server. An earlier test may have used the same database and
// its connections.
func Postgres(t testing.TB) *db.DB {
	t.Helper()
	return open(t, db.Options{Borrow: reuse(t).d, Log: slog.New(slog.DiscardHandler)})
}

// PostgresURL returns the URL of an empty migrated database on the shared server. An earlier test may have used the
// same database.
func PostgresURL(t testing.TB) string {
	t.Helper()
	return databaseURL(reuse(t).name)
}

// newPostgresURL creates a migrated database and returns its URL. The database is dropped when the test ends. Tests
// that check plans need a new database, because deleted rows of earlier tests change the planner's choice.
func newPostgresURL(t testing.TB) string {
	t.Helper()
	return temporaryDatabase(t, template(t))
}

// template starts the shared server and returns the name of the server's migrated database.
func template(t testing.TB) string {
	t.Helper()
	start(t)
	name, err := migratedTemplate()
	if err != nil {
		t.Fatalf("migrate a database of the test's PostgreSQL: %v", err)
	}
	return name
}

// EmptyPostgresURL creates a database without tables on the shared server and returns its URL. The database is dropped
// when the test ends.
func EmptyPostgresURL(t testing.TB) string {
	t.Helper()
	start(t)
	return temporaryDatabase(t, "template0")
}

// temporaryDatabase creates a database as a copy of template and drops it when the test ends.
func temporaryDatabase(t testing.TB, template string) (url string) {
	t.Helper()
	name, err := createDatabase(template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dropDatabase(name); err != nil {
			t.Log(err)
		}
	})
	return databaseURL(name)
}

// createDatabase creates a database with a random name as a copy of template.
func createDatabase(template string) (name string, err error) {
	name = "t_" + strings.ReplaceAll(id.New(), "-", "")
	err = control(func(ctx context.Context, c *pgx.Conn) error { return copyDatabase(ctx, c, name, template) })
	if err != nil {
		return "", fmt.Errorf("create a database: %w", err)
	}
	return name, nil
}

func dropDatabase(name string) error {
	err := control(func(ctx context.Context, c *pgx.Conn) error {
		_, err := c.Exec(ctx, "DROP DATABASE "+name+" WITH (FORCE)")
		return err
	})
	if err != nil {
		return fmt.Errorf("drop a database: %w", err)
	}
	return nil
}

// copyDatabase copies the template's files. From version 15 on, PostgreSQL by default writes the copied pages to its
// log, which takes twice as long for small databases.
func copyDatabase(ctx context.Context, c *pgx.Conn, name, template string) error {
	query := "CREATE DATABASE " + name + " TEMPLATE " + template
	if c.PgConn().ParameterStatus("server_version") >= "15" {
		query += " STRATEGY FILE_COPY"
	}
	_, err := c.Exec(ctx, query)
	return err
}

// migratedTemplate returns the name of a database with all migrations applied.
var migratedTemplate = sync.OnceValues(func() (name string, err error) {
	sum, err := db.MigrationsChecksum()
	if err != nil {
		return "", err
	}
	// The template has the partitions of its month and the next one.
	name = "postrider_test_" + sum[:16] + db.Now().Format("_200601")
	err = control(func(ctx context.Context, c *pgx.Conn) error {
		const lock = 7_245_110_001
		if _, err := c.Exec(ctx, "SELECT pg_advisory_lock($1)", int64(lock)); err != nil {
			return err
		}
		defer c.Exec(ctx, "SELECT pg_advisory_unlock($1)", int64(lock))
		var exists bool
		err := c.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&exists)
		if err != nil || exists {
			return err
		}
		unfinished := name + "_unfinished" // a killed process may have left this database behind
		if _, err := c.Exec(ctx, "DROP DATABASE IF EXISTS "+unfinished+" WITH (FORCE)"); err != nil {
			return err
		}
		if err := copyDatabase(ctx, c, unfinished, "template0"); err != nil {
			return err
		}
		if err := migrateDatabase(ctx, databaseURL(unfinished)); err != nil {
			return err
		}
		_, err = c.Exec(ctx, "ALTER DATABASE "+unfinished+" RENAME TO "+name)
		return err
	})
	return name, err
})

func migrateDatabase(ctx context.Context, url string) error {
	d, err := db.Open(ctx, db.Options{URL: url, MaxConns: 2})
	if err != nil {
		return err
	}
	defer d.Close()
	if _, err = d.Migrate(ctx); err != nil {
		return err
	}
	return partitions.New(d, "month", slog.New(slog.DiscardHandler)).Make(ctx)
}

// databaseURL returns the URL of a database on the shared server, without a pooler.
func databaseURL(name string) string {
	return parsedURL(name).String()
}

// borrowedURL returns the URL with which the connections that tests borrow are opened.
func borrowedURL(name string) string {
	u := parsedURL(name)
	q := u.Query()
	q.Set("application_name", ownName)
	if dir := socketFolder(); dir != "" {
		q.Set("host", dir)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

func parsedURL(name string) *url.URL {
	u, err := url.Parse(shared.url)
	if err != nil {
		panic(err) // cannot fail, because shared.url has already been used to connect
	}
	u.Path = "/" + name
	return u
}

// socketFolder returns the folder of the shared server's Unix socket, or "" if this process cannot use the socket. A
// statement over the socket takes a fifth less processor time than one over TCP.
var socketFolder = sync.OnceValue(func() (dir string) {
	err := control(func(ctx context.Context, c *pgx.Conn) error {
		var dirs string
		if err := c.QueryRow(ctx, "SHOW unix_socket_directories").Scan(&dirs); err != nil {
			return err
		}
		first, _, _ := strings.Cut(dirs, ",")
		socket := filepath.Join(first, ".s.PGSQL."+strconv.Itoa(int(c.Config().Port)))
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err
		}
		dir = first
		return conn.Close()
	})
	if err != nil {
		return "" // a server on another machine, or in a container, has no socket here
	}
	return dir
})

// controlConn is the connection that creates and drops databases.
var controlConn struct {
	mu   sync.Mutex
	conn *pgx.Conn
}

// control calls f with the connection that creates and drops databases, one call at a time.
func control(f func(ctx context.Context, c *pgx.Conn) error) (err error) {
	ctx := context.Background()
	controlConn.mu.Lock()
	defer controlConn.mu.Unlock()
	if controlConn.conn == nil || controlConn.conn.IsClosed() {
		if controlConn.conn, err = pgx.Connect(ctx, shared.url); err != nil {
			return fmt.Errorf("connect to the test's PostgreSQL: %w", err)
		}
	}
	return f(ctx, controlConn.conn)
}

// shared is the PostgreSQL server that all tests in a test binary use.
var shared struct {
	ready  bool
	once   sync.Once
	url    string
	err    error
	server *Server
	pooler *Pooler // nil unless tests use a pooler
	after  []func()
}

// start starts the shared server unless it is already running.
func start(t testing.TB) {
	t.Helper()
	if !shared.ready {
		t.Fatal("dbtest: the package needs func TestMain(m *testing.M) { dbtest.Main(m) }")
	}
	shared.once.Do(func() {
		if shared.url = os.Getenv("POSTRIDER_TEST_POSTGRES"); shared.url == "" {
			if shared.server, shared.err = Launch(MemoryFolder(), 0); shared.err == nil {
				shared.url = shared.server.URL
			}
		}
		if shared.err == nil {
			shared.err = startSharedPooler()
		}
	})
	if shared.err != nil {
		t.Fatalf("%v\nInstall PostgreSQL's server (`make deps` does), or set POSTRIDER_TEST_POSTGRES to a server's URL.",
			shared.err)
	}
}

// NewRole creates a user of the shared server without rights, and drops the user when the test ends.
func NewRole(t testing.TB) (name string) {
	t.Helper()
	start(t)
	name = "r_" + strings.ReplaceAll(id.New(), "-", "")
	run := func(text string) {
		if err := control(func(ctx context.Context, c *pgx.Conn) error {
			_, err := c.Exec(ctx, text+name)
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	run("CREATE USER ")
	t.Cleanup(func() { run("DROP USER ") })
	return name
}

// DropPartitions drops all partitions but the default partitions, which then take all rows. The partitions of a test's
// database cover the current and the next month.
func DropPartitions(t testing.TB, d *db.DB) {
	t.Helper()
	all, err := partitions.New(d, "month", slog.New(slog.DiscardHandler)).List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = d.Update(t.Context(), func(tx *db.Tx) error {
		for _, p := range all {
			if !p.Default {
				tx.Queue(t.Context(), `DROP TABLE `+p.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
