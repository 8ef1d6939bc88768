// Package e2e builds and starts the program, and tests it from the outside over HTTP, SMTP and the command line.
package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// binary is the path of the program, which is built once for all tests.
var binary string

func TestMain(m *testing.M) {
	// Reading this variable prevents cached test results in `make test`, because go test does not know that these tests
	// depend on the program and on the official clients.
	_ = os.Getenv("POSTRIDER_TEST_RUN")
	dir, err := os.MkdirTemp("", "postrider-e2e-")
	if err == nil {
		binary = filepath.Join(dir, "postrider")
		var out []byte
		if out, err = exec.Command("go", "build", "-o", binary, "../cmd/postrider").CombinedOutput(); err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "build the program:", err)
		os.Exit(1)
	}
	// By default, more end-to-end tests than CPUs run in parallel, because the tests mostly wait for other programs.
	// The flag -test.parallel overrides this default.
	flag.Set("test.parallel", "6")
	// dbtest.Main exits the process, so this hook ends the browser and removes the folder.
	dbtest.After(func() { stopBrowser(); os.RemoveAll(dir) })
	dbtest.Main(m)
}

// onEachEngine runs the test f in parallel for SQLite and PostgreSQL, and passes it the environment variables that
// select the database.
func onEachEngine(t *testing.T, f func(t *testing.T, env []string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		f(t, nil)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		f(t, []string{"POSTRIDER_DATABASE_URL=" + dbtest.PostgresURL(t)})
	})
}

const key = "re_e2e_012345678901234567890123"

// node is a running program.
type node struct {
	t       *testing.T
	program string
	addr    string
	args    []string
	env     []string
	cmd     *exec.Cmd
	out     *said
	tail    int // number of output bytes to print after a failed test; 0 means all
}

// start runs postrider dev in a new folder, with additional arguments and environment variables.
func start(t *testing.T, env []string, args ...string) *node {
	t.Helper()
	n := prepare(t, binary, env, args...)
	n.launch()
	return n
}

// prepare returns a node for any build of the program, without starting it.
func prepare(t *testing.T, program string, env []string, args ...string) *node {
	t.Helper()
	n := &node{t: t, program: program, addr: freeport.Addr(t), env: env}
	n.args = append([]string{"dev", "--data-dir", t.TempDir(), "--http", n.addr, "--api-key", key, "--rate-limit", "0"},
		args...)
	t.Cleanup(func() {
		if n.cmd != nil {
			n.cmd.Process.Signal(syscall.SIGTERM)
			n.cmd.Wait()
		}
		if t.Failed() {
			text := n.out.String()
			if n.tail > 0 {
				text = text[max(0, len(text)-n.tail):]
			}
			t.Logf("the program said:\n%s", text)
		}
	})
	return n
}

// environ returns the variables of the test without those that begin with POSTRIDER_: the variables of the tests are no
// settings, and the program refuses them.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "POSTRIDER_") })
}

func (n *node) launch() {
	n.t.Helper()
	n.out = &said{}
	n.cmd = exec.Command(n.program, n.args...)
	n.cmd.Env = append(environ(), n.env...)
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, 20*time.Second, "the program answers", func() bool {
		r, err := http.Get("http://" + n.addr + "/readyz")
		if err != nil {
			return false
		}
		r.Body.Close()
		return r.StatusCode == http.StatusOK
	})
}

// localhost returns the URL that the program prints at startup.
func (n *node) localhost() string { return "http://" + n.named() }

// named returns the URL for browsers, in which the host name is localhost. The node redirects requests for 127.0.0.1 to
// that URL (see byName in package node).
func (n *node) named() string {
	n.t.Helper()
	_, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	return "localhost:" + port
}

// kill sends SIGKILL to the program and waits until it has exited.
func (n *node) kill() {
	n.cmd.Process.Kill()
	n.cmd.Wait()
}

// patience multiplies the time limits of tests. They end tests that wait in vain; they do not judge how fast a busy
// machine is.
const patience = 5

// eventually calls done repeatedly until it returns true, and fails the test after a timeout.
func eventually(t *testing.T, limit time.Duration, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	over := time.After(patience * limit)
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not within %v: %s", patience*limit, what)
		}
	}
}

// call sends a request and decodes the response, whatever its status.
func (n *node) call(ctx context.Context, method, path, body string, out any) (status int, err error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+n.addr+path, strings.NewReader(body))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("Accept", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && out != nil {
		if s, ok := out.(*string); ok {
			*s = string(text)
		} else {
			err = json.Unmarshal(text, out)
		}
	}
	return answer.StatusCode, err
}

// must sends a request and fails the test unless the request succeeds.
func (n *node) must(method, path, body string, out any) {
	n.t.Helper()
	status, err := n.call(n.t.Context(), method, path, body, out)
	if err != nil || status/100 != 2 {
		n.t.Fatalf("%s %s: status %d, %v", method, path, status, err)
	}
}

// addDomain adds a sending domain and verifies it.
func (n *node) addDomain(name string) {
	n.t.Helper()
	n.addDomainOf(`{"name":"` + name + `"}`)
}

// addDomainOf adds a domain, verifies it, and returns its id.
func (n *node) addDomainOf(body string) string {
	n.t.Helper()
	var d struct{ ID, Status string }
	n.must(http.MethodPost, "/domains", body, &d)
	n.verifyDomain(d.ID)
	return d.ID
}

// verifyDomain verifies a domain and waits for the result.
func (n *node) verifyDomain(id string) {
	n.t.Helper()
	n.must(http.MethodPost, "/domains/"+id+"/verify", "", nil)
	eventually(n.t, 20*time.Second, "the domain is verified", func() bool {
		var d struct{ Status string }
		n.must(http.MethodGet, "/domains/"+id, "", &d)
		return d.Status == "verified"
	})
}

// captured returns, from the development outbox, the parsed message that was sent to the given address.
func (n *node) captured(to string) *mailparse.Parsed {
	n.t.Helper()
	var raw string
	eventually(n.t, 20*time.Second, "a message to "+to+" is in the outbox", func() bool {
		var all struct {
			Data []struct{ ID string }
		}
		n.must("GET", "/dev/outbox?to="+url.QueryEscape(to), "", &all)
		if len(all.Data) == 0 {
			return false
		}
		n.must("GET", "/dev/outbox/"+all.Data[0].ID+"/raw", "", &raw)
		return true
	})
	return mailparse.Parse([]byte(raw))
}
