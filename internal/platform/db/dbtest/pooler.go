package dbtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// poolerVariable is the environment variable with which tests that use helpers of dbtest reach PostgreSQL through
// PgBouncer in transaction mode. `make pooler` sets it.
const poolerVariable = "POSTRIDER_TEST_POOLER"

// Pooled reports whether tests reach PostgreSQL through PgBouncer (see poolerVariable).
func Pooled() bool { return os.Getenv(poolerVariable) != "" }

// Pooler is a PgBouncer on a free loopback port.
type Pooler struct {
	addr    string
	release func() // ends the reservation of the port
	folder  *folder
	cmd     *exec.Cmd
}

// NewPooler starts a pooler that forwards to the server that serverURL names, with at most size sessions for each
// database. The mode is transaction or session. The pooler uses the user of serverURL for all databases.
func NewPooler(t testing.TB, serverURL, mode string, size int) *Pooler {
	t.Helper()
	p, err := launchPooler(serverURL, mode, size)
	if err != nil {
		t.Fatalf("%v\nInstall PgBouncer (`make deps` does).", err)
	}
	t.Cleanup(p.remove)
	return p
}

// URL returns databaseURL with the pooler's address.
func (p *Pooler) URL(databaseURL string) string {
	u, err := url.Parse(databaseURL)
	if err != nil {
		panic(err) // cannot fail, because tests pass URLs that they have used
	}
	u.Host = p.addr
	q := u.Query()
	q.Del("host") // the folder of the server's socket
	u.RawQuery = q.Encode()
	return u.String()
}

func launchPooler(serverURL, mode string, size int) (_ *Pooler, err error) {
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if program = "/usr/sbin/pgbouncer"; !isFile(program) {
			return nil, errors.New("found no pgbouncer, neither in PATH nor in /usr/sbin")
		}
	}
	u, err := url.Parse(serverURL)
	if err != nil {
		return nil, err
	}
	port, release, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	p := &Pooler{addr: "127.0.0.1:" + strconv.Itoa(port), release: release}
	if p.folder, err = newFolder(MemoryFolder(), "pgbouncer"); err != nil {
		release()
		return nil, err
	}
	defer func() {
		if err != nil {
			p.remove()
		}
	}()
	ini := filepath.Join(p.folder.path, "pgbouncer.ini")
	text := fmt.Sprintf(poolerConfig, u.Hostname(), cmp.Or(u.Port(), "5432"), u.User.Username(), port, mode, size)
	if err := os.WriteFile(ini, []byte(text), 0o644); err != nil {
		return nil, err
	}
	p.cmd = exec.Command(program, "-q", ini)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		uid, gid, err := unprivileged()
		if err != nil {
			return nil, err
		}
		if err := os.Chown(p.folder.path, uid, gid); err != nil {
			return nil, err
		}
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	var log strings.Builder
	p.cmd.Stderr = &log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return nil, fmt.Errorf("start pgbouncer: %w", err)
	}
	if err := waitFor(p.URL(serverURL)); err != nil {
		return nil, fmt.Errorf("pgbouncer did not answer: %w: %s", err, log.String())
	}
	return p, nil
}

// poolerConfig has the settings that docs/operating/pgbouncer.md recommends. Other settings suit tests: many databases,
// and no passwords.
const poolerConfig = `[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = %d
max_client_conn = 2000
server_idle_timeout = 5
autodb_idle_timeout = 10
server_login_retry = 1
`

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func (p *Pooler) remove() {
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
	p.folder.remove()
	p.release()
}

// pooledUser is the user of the shared pooler's sessions, so that tests can tell these sessions from others.
const pooledUser = "postrider_pooled"

// startSharedPooler starts the pooler in front of the shared server, if tests use a pooler.
func startSharedPooler() error {
	if !Pooled() {
		return nil
	}
	err := control(func(ctx context.Context, c *pgx.Conn) error {
		// The settings are those that docs/operating/pgbouncer.md recommends for the user.
		_, err := c.Exec(ctx, `DO $$ BEGIN CREATE ROLE `+pooledUser+` SUPERUSER LOGIN;
			ALTER ROLE `+pooledUser+` SET jit = off;
			ALTER ROLE `+pooledUser+` SET enable_seqscan = off;
			EXCEPTION WHEN duplicate_object OR unique_violation THEN END $$`)
		return err
	})
	if err != nil {
		return err
	}
	u, err := url.Parse(shared.url)
	if err != nil {
		return err
	}
	u.User = url.User(pooledUser)
	shared.pooler, err = launchPooler(u.String(), "transaction", 20)
	return err
}

// throughPooler changes the options of a database on the shared server, if tests use a pooler.
func throughPooler(o db.Options) db.Options {
	if shared.pooler != nil && db.IsPostgres(o.URL) {
		o.URL, o.DirectURL = shared.pooler.URL(o.URL), o.URL
	}
	return o
}

// ProxyTo starts a proxy in front of a database on the shared server, and in front of the pooler if tests use one.
func ProxyTo(t testing.TB, databaseURL string) *pgproxy.Proxy {
	t.Helper()
	p, err := (*pgproxy.Proxy)(nil), error(nil)
	if o := throughPooler(db.Options{URL: databaseURL}); o.DirectURL != "" {
		p, err = pgproxy.StartBoth(o.URL, o.DirectURL)
	} else {
		p, err = pgproxy.Start(databaseURL)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Through sets the addresses in o to those of a proxy.
func Through(p *pgproxy.Proxy, o db.Options) db.Options {
	o.URL, o.DirectURL = p.URL(), p.DirectURL()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}
