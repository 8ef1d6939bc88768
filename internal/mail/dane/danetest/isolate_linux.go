package danetest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// isolated is set in the environment of a process that Isolate started.
const isolated = "POSTRIDER_TEST_DANE_LAB"

// Isolated reports whether Isolate started this process.
func Isolated() bool { return os.Getenv(isolated) != "" }

// Isolate runs the test again in another process, which has its own network and a resolv.conf that names the lab's
// resolver. The test must call Isolate first, and return if done is true. In the other process, done is false. If this
// process may not create namespaces, done is false too, and why says how to allow them.
func Isolate(t testing.TB) (done bool, why string) {
	t.Helper()
	if Isolated() {
		prepare(t)
		return false, ""
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The deadline of the test applies to the other process as well.
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), isolated+"=1")
	cmd.SysProcAttr = attributes()
	probe := exec.Command(find(t, "true", "coreutils"))
	probe.SysProcAttr = attributes()
	if err := probe.Run(); err != nil {
		return false, "namespaces of its own are not allowed (" + err.Error() + "): run the test as root, or allow user " +
			"namespaces (sysctl kernel.unprivileged_userns_clone=1; for containers, --security-opt seccomp=unconfined " +
			"and --cap-add SYS_ADMIN)"
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("in the lab: %v", err)
	}
	return true, ""
}

// These are the numbers of capabilities in linux/capability.h.
const (
	bindService = 10
	netAdmin    = 12
	sysAdmin    = 21
)

// attributes returns the settings that start a process in its own network and mount namespaces. Without root
// privileges, the process also gets a user namespace.
func attributes() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() == 0 {
		a.Unshareflags = syscall.CLONE_NEWNS // makes the mounts private
		return a
	}
	a.Cloneflags |= syscall.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}}
	a.AmbientCaps = []uintptr{bindService, netAdmin, sysAdmin}
	return a
}

// prepare turns on the network of this process and replaces its resolv.conf.
func prepare(t testing.TB) {
	t.Helper()
	if out, err := exec.Command(find(t, "ip", "iproute2"), "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("ip link set lo up: %v\n%s", err, out)
	}
	conf := filepath.Join(t.TempDir(), "resolv.conf")
	write(t, conf, "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n")
	if err := os.Chmod(conf, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount(conf, "/etc/resolv.conf", "", syscall.MS_BIND, ""); err != nil {
		t.Fatalf("mount %s: %v", conf, err)
	}
}
