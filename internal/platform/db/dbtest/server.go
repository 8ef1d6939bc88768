package dbtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// Server is a PostgreSQL server on a free loopback port, with a separate data folder.
type Server struct {
	URL string // URL that names a superuser; stays the same when the server restarts

	bin, dir string
	port     int
	release  func()   // ends the reservation of the port; nil if the caller chose the port
	settings []string // additional settings, as name=value
	folder   *folder
	attr     *syscall.SysProcAttr
	cmd      *exec.Cmd
}

// NewServer starts a server that only this test uses, so that the test may stop and restart the server. The server's
// data is in a new folder in dir, or in the system's folder for temporary files if dir is empty. The server has the
// given settings, such as "wal_level=replica".
func NewServer(t testing.TB, dir string, settings ...string) *Server {
	t.Helper()
	s, err := launch(dir, 0, settings, initCluster)
	if err != nil {
		t.Fatalf("%v\nInstall PostgreSQL's server (`make deps` does).", err)
	}
	t.Cleanup(s.Remove)
	return s
}

// Launch creates a cluster in a new folder in dir and starts its server. If dir is empty, the folder is in the system's
// folder for temporary files. If port is 0, the server listens on any free port.
func Launch(dir string, port int) (*Server, error) { return launch(dir, port, nil, initCluster) }

// launch starts a server on a new folder that the function fill has filled.
func launch(dir string, port int, settings []string, fill func(*Server) *exec.Cmd) (_ *Server, err error) {
	s := &Server{attr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGQUIT}, settings: settings}
	if s.bin, err = binaries(); err != nil {
		return nil, err
	}
	if s.folder, err = newFolder(dir, "pg"); err != nil {
		return nil, err
	}
	s.dir = s.folder.path
	defer func() {
		if err != nil {
			s.Remove()
		}
	}()
	if os.Getuid() == 0 {
		uid, gid, err := unprivileged()
		if err != nil {
			return nil, err
		}
		if err := os.Chown(s.dir, uid, gid); err != nil {
			return nil, err
		}
		s.attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	}
	filling := fill(s)
	filling.SysProcAttr = &syscall.SysProcAttr{Credential: s.attr.Credential}
	filling.Dir = s.dir
	if out, err := filling.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", filepath.Base(filling.Path), err, out)
	}
	if s.port = port; port == 0 {
		if s.port, s.release, err = freeport.Take(); err != nil {
			return nil, err
		}
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	return s, s.Start()
}

// initCluster returns the command that creates an empty cluster.
func initCluster(s *Server) *exec.Cmd {
	return exec.Command(filepath.Join(s.bin, "initdb"), "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8",
		"--locale=C", "--no-sync")
}

// Standby starts a streaming standby of the server, which needs the settings wal_level=replica and max_wal_senders.
func (s *Server) Standby(t testing.TB) *Server {
	t.Helper()
	standby, err := launch(filepath.Dir(s.dir), 0, s.settings, func(standby *Server) *exec.Cmd {
		return exec.Command(filepath.Join(s.bin, "pg_basebackup"), "-D", standby.data(), "-R", "-c", "fast", "--no-sync",
			"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "postgres")
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(standby.Remove)
	return standby
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// Start starts the server and waits until it accepts connections, for half a minute at most.
func (s *Server) Start() error {
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.port), "-k", s.dir,
		"-c", "listen_addresses=127.0.0.1", "-c", "max_connections=400", "-c", "shared_buffers=32MB",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "wal_level=minimal", "-c", "max_wal_senders=0",
		"-c", "max_wal_size=256MB", "-c", "autovacuum=off", "-c", "jit=off", "-c", "log_min_messages=fatal"}
	for _, setting := range s.settings {
		args = append(args, "-c", setting)
	}
	s.cmd = exec.Command(filepath.Join(s.bin, "postgres"), args...)
	s.cmd.SysProcAttr = s.attr
	s.cmd.Dir = s.dir
	var log strings.Builder
	s.cmd.Stderr = &log
	if err := s.cmd.Start(); err != nil {
		s.cmd = nil
		return fmt.Errorf("start postgres: %w", err)
	}
	if err := waitFor(s.URL); err != nil {
		s.Stop(syscall.SIGQUIT)
		return fmt.Errorf("postgres did not answer: %w: %s", err, log.String())
	}
	return nil
}

// Up reports whether the server accepts connections.
func (s *Server) Up() bool {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL)
	if err == nil {
		c.Close(ctx)
	}
	return err == nil
}

// Stop stops the server and waits until it has exited. SIGINT closes all connections and shuts the server down cleanly.
// SIGQUIT leaves the data as it would be after a crash, and the next start recovers the data.
func (s *Server) Stop(how os.Signal) {
	if s.cmd != nil {
		s.cmd.Process.Signal(how)
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Remove stops the server and deletes its folder.
func (s *Server) Remove() {
	s.Stop(syscall.SIGQUIT)
	s.folder.remove()
	if s.release != nil {
		s.release()
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

// binaries returns the folder that contains PostgreSQL's server programs. The search covers PATH and then Debian's
// installation folders, newest version first.
func binaries() (string, error) {
	if p, err := exec.LookPath("initdb"); err == nil {
		if p, err = filepath.EvalSymlinks(p); err == nil { // the folder in PATH may contain links to some programs only
			return filepath.Dir(p), nil
		}
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	slices.Reverse(dirs)
	if len(dirs) == 0 {
		return "", errors.New("found no initdb, neither in PATH nor in /usr/lib/postgresql")
	}
	return filepath.Dir(dirs[0]), nil
}

// unprivileged returns the ids of a user to run the server as, because PostgreSQL refuses to run as root.
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

// OpenSuperuser connects to a server and returns a function that executes a statement outside a transaction, such as
// ALTER SYSTEM.
func OpenSuperuser(t testing.TB, url string) func(text string) error {
	t.Helper()
	c, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return func(text string) error {
		_, err := c.Exec(t.Context(), text)
		return err
	}
}
