//go:build packages

package packages

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Folders and files that make packages-test provides.
var (
	releaseFolder = os.Getenv("POSTRIDER_RELEASE") // filled by scripts/release
	debianFolder  = os.Getenv("POSTRIDER_DEBIAN")  // a Debian system made by debootstrap
)

// limit is the maximum time of a test.
const limit = 5 * time.Minute

// insideVariable is set in the process that runs a test in namespaces of its own.
const insideVariable = "POSTRIDER_TEST_INSIDE"

// inside runs the calling test once more in a process with its own network, mounts and processes, all of which
// disappear with the process. Inside, it returns true. Outside, it reports the result and returns false.
func inside(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		for _, args := range [][]string{{"ip", "link", "set", "lo", "up"}, {"mount", "-t", "tmpfs", "tmpfs", "/run/netns"}} {
			if args[0] == "mount" {
				if err := os.MkdirAll("/run/netns", 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
		}
		return true
	}
	if os.Getuid() != 0 {
		t.Fatal("run this test as root, because it creates namespaces")
	}
	ctx, stop := context.WithTimeout(t.Context(), limit)
	defer stop()
	c := exec.CommandContext(ctx, "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
		os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), insideVariable+"=1")
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatalf("inside: %v", err)
	}
	return false
}

// release returns the name of the only file of the release that matches a pattern.
func release(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(releaseFolder, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s in %q: found %q, %v; run make packages-test", pattern, releaseFolder, found, err)
	}
	return found[0]
}

// machine is a Debian system in a folder.
type machine struct {
	t      *testing.T
	root   string
	prefix []string // command that runs another command in the machine
}

// newMachine copies the Debian system. Its commands run in the folder, without systemd.
func newMachine(t *testing.T) *machine {
	t.Helper()
	m := copyMachine(t)
	m.prefix = []string{"chroot", m.root}
	// The folders of this machine must not be mounted here: the removal of the temporary folder would empty them.
	dev := filepath.Join(m.root, "dev")
	m.here("mount", "-t", "proc", "proc", filepath.Join(m.root, "proc"))
	m.here("mount", "-t", "tmpfs", "tmpfs", dev)
	for name, numbers := range map[string][]string{"null": {"1", "3"}, "zero": {"1", "5"}, "full": {"1", "7"},
		"random": {"1", "8"}, "urandom": {"1", "9"}, "tty": {"5", "0"}} {
		m.here("mknod", "-m", "666", filepath.Join(dev, name), "c", numbers[0], numbers[1])
	}
	m.here("mkdir", filepath.Join(dev, "pts"))
	m.here("mount", "-t", "devpts", "-o", "newinstance,ptmxmode=0666", "devpts", filepath.Join(dev, "pts"))
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0",
		"stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		m.here("ln", "-s", to, filepath.Join(dev, name))
	}
	t.Cleanup(func() {
		for _, name := range []string{"dev/pts", "dev", "proc"} {
			if out, err := exec.Command("umount", "--lazy", filepath.Join(m.root, name)).CombinedOutput(); err != nil {
				t.Errorf("unmount %s: %v\n%s", name, err, out)
			}
		}
	})
	return m
}

func copyMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: filepath.Join(t.TempDir(), "debian")}
	m.here("cp", "-a", debianFolder, m.root)
	m.write("/etc/resolv.conf", "")
	return m
}

// bootMachine starts a copy of the Debian system with its own systemd, in the network namespace with a name.
func bootMachine(t *testing.T, network string) *machine {
	t.Helper()
	m := copyMachine(t)
	c := exec.CommandContext(t.Context(), "systemd-nspawn", "--boot", "--register=no", "--keep-unit", "--quiet",
		"--directory="+m.root, "--network-namespace-path=/run/netns/"+network, "--resolv-conf=off", "--timezone=off",
		"--link-journal=no")
	console := &said{}
	c.Stdout, c.Stderr = console, console
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		if t.Failed() {
			t.Logf("the console shows:\n%s", console)
		}
	})
	children := fmt.Sprintf("/proc/%d/task/%d/children", c.Process.Pid, c.Process.Pid)
	eventually(t, "systemd has started the machine", func() bool {
		pids, err := os.ReadFile(children)
		first, _, _ := strings.Cut(strings.TrimSpace(string(pids)), " ")
		if err != nil || first == "" {
			return false
		}
		m.prefix = []string{"nsenter", "--target", first, "--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd"}
		state, _ := m.try("systemctl is-system-running")
		return state == "running" || state == "degraded"
	})
	return m
}

// here runs a command outside of the machine.
func (m *machine) here(name string, args ...string) string {
	m.t.Helper()
	out, err := exec.CommandContext(m.t.Context(), name, args...).CombinedOutput()
	if err != nil {
		m.t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// command returns a command in the machine.
func (m *machine) command(name string, args ...string) *exec.Cmd {
	all := slices.Concat(m.prefix, []string{name}, args)
	c := exec.CommandContext(m.t.Context(), all[0], all[1:]...)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
		"DEBIAN_FRONTEND=noninteractive"}
	return c
}

// try runs a shell command in the machine and returns its output.
func (m *machine) try(command string) (string, error) {
	out, err := m.command("sh", "-ec", command).CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

// run runs a shell command in the machine, which must succeed.
func (m *machine) run(command string) string {
	m.t.Helper()
	out, err := m.try(command)
	if err != nil {
		m.t.Fatalf("%s: %v\n%s", command, err, out)
	}
	return out
}

// refuse runs a shell command in the machine, which must fail.
func (m *machine) refuse(command string) {
	m.t.Helper()
	if out, err := m.try(command); err == nil {
		m.t.Errorf("%s succeeds:\n%s", command, out)
	}
}

func (m *machine) write(name, text string) {
	m.t.Helper()
	if err := os.WriteFile(filepath.Join(m.root, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// copyIn copies a file into the machine's folder /root.
func (m *machine) copyIn(name string) {
	m.t.Helper()
	m.here("cp", name, filepath.Join(m.root, "root")+"/")
}

// unit returns the values of a setting of the installed systemd unit.
func (m *machine) unit(key string) (values []string) {
	m.t.Helper()
	text, err := os.ReadFile(filepath.Join(m.root, "usr/lib/systemd/system/postrider.service"))
	if err != nil {
		m.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+"="); ok {
			values = append(values, value)
		}
	}
	if len(values) == 0 {
		m.t.Fatalf("the unit has no %s", key)
	}
	return values
}

// listenNotify creates the socket at which systemd would learn that the service is ready. systemctl waits for that.
func (m *machine) listenNotify() *net.UnixConn {
	m.t.Helper()
	const name = "/run/postrider-notify"
	path := filepath.Join(m.root, name)
	os.Remove(path)
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { l.Close() })
	m.here("chmod", "666", path)
	return l
}

// service is a running ExecStart of the unit.
type service struct {
	t    *testing.T
	cmd  *exec.Cmd
	said said
	done chan error
}

// said collects output of a running process.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// startService runs the unit's ExecStart as systemd would: as its user, in its working directory, with no capability but
// its ambient one. It waits until the node is ready, as systemctl does.
func (m *machine) startService() *service {
	m.t.Helper()
	s := &service{t: m.t, done: make(chan error, 1)}
	user := m.unit("User")[0]
	args := []string{"--reuid", user, "--regid", m.unit("Group")[0], "--init-groups", "--no-new-privs"}
	capability := "+" + strings.ToLower(strings.TrimPrefix(m.unit("AmbientCapabilities")[0], "CAP_"))
	args = append(args, "--inh-caps", "-all,"+capability, "--ambient-caps", "-all,"+capability, "--bounding-set",
		"-all,"+capability)
	ready := m.listenNotify()
	script := "export NOTIFY_SOCKET=/run/postrider-notify; cd " + m.unit("WorkingDirectory")[0] + " && umask " +
		m.unit("UMask")[0] + " && exec setpriv " +
		strings.Join(args, " ") + " " + m.unit("ExecStart")[0]
	s.cmd = m.command("sh", "-c", script)
	s.cmd.Stdout, s.cmd.Stderr = &s.said, &s.said
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	go func() { s.done <- s.cmd.Wait() }()
	m.t.Cleanup(func() {
		s.cmd.Process.Kill()
		if m.t.Failed() {
			m.t.Logf("the node said:\n%s", s.said.String())
		}
	})
	ready.SetReadDeadline(time.Now().Add(time.Minute))
	state := make([]byte, 100)
	if n, err := ready.Read(state); err != nil || string(state[:n]) != "READY=1" {
		m.t.Fatalf("the node tells systemd %q, %v", state[:n], err)
	}
	return s
}

// await waits until a node answers at a URL.
func (s *service) await(url string) {
	s.t.Helper()
	eventually(s.t, "the node is ready", func() bool {
		select {
		case err := <-s.done:
			s.t.Fatalf("the node has ended: %v\n%s", err, s.said.String())
		default:
		}
		r, err := http.Get(url + "/readyz")
		if err == nil {
			r.Body.Close()
		}
		return err == nil && r.StatusCode == http.StatusOK
	})
}

// stop stops a node as systemd does, and waits until it has ended.
func (s *service) stop() {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case err := <-s.done:
		if err != nil {
			s.t.Fatalf("the node ended with %v\n%s", err, s.said.String())
		}
	case <-time.After(time.Minute):
		s.t.Fatal("the node does not stop")
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	end := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("not within a minute: %s", what)
		case <-t.Context().Done():
			t.Fatalf("interrupted: %s", what)
		}
	}
}

// listens reports whether something listens at an address.
func listens(address string) error {
	c, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return fmt.Errorf("nothing listens: %w", err)
	}
	return c.Close()
}
