//go:build tls && linux

package servedpolicies_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// inLab is set in the process that has a network of its own, in which only the lab can be reached.
const inLab = "POSTRIDER_TEST_SERVED_LAB"

// The command mta-sts-query of postfix-mta-sts-resolver reads each served policy, with the id of our record. The
// command looks up names with the machine's settings and connects to port 443. The test therefore runs again in a
// network namespace with its own resolv.conf, which needs root privileges.
func TestResolverReadsPolicies(t *testing.T) {
	if os.Getenv(inLab) == "" {
		isolate(t)
		return
	}
	run(t, "ip", "link", "set", "lo", "up")
	folder := t.TempDir()
	conf, root := filepath.Join(folder, "resolv.conf"), filepath.Join(folder, "root.pem")
	write(t, conf, "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
	run(t, "mount", "--bind", conf, "/etc/resolv.conf")
	f := newFixtureAt(t, dbtest.SQLite(t), ststest.NewAt(t, "127.0.0.1:53", "127.0.0.1:443"))
	f.at = time.Now().UTC() // the command has no clock of its own
	write(t, root, string(f.lab.CA.PEM()))
	for _, mode := range []servedpolicies.Mode{servedpolicies.Testing, servedpolicies.Enforce, servedpolicies.Off} {
		f.set(servedpolicies.Change{Mode: mode, Hosts: []string{"mx2.example"}})
		f.pass(6 * time.Minute)
		f.publish()
		cmd := exec.CommandContext(t.Context(), "mta-sts-query", name)
		cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+root)
		out, err := cmd.CombinedOutput()
		want := []string{"VALID", f.get().ID, "'" + string(mode) + "'", inbound, "mx2.example"}
		if mode == servedpolicies.Off {
			want = []string{"VALID", f.get().ID, "'none'"}
		}
		for _, part := range want {
			if err != nil || !strings.Contains(string(out), part) {
				t.Errorf("mta-sts-query about the mode %s does not print %q: %v\n%s", mode, part, err, out)
			}
		}
	}
}

// isolate runs the test in a network and mount namespace of its own.
func isolate(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Fatal("this test needs root privileges for a network namespace")
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inLab+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS,
		Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in the lab: %v", err)
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
