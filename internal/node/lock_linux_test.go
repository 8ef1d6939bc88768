package node

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
)

// A lock that a command of root creates or opens belongs to the owner of data_dir, so that the node can open it.
func TestLockOfRoot(t *testing.T) {
	t.Parallel()
	owner, dir := os.Getuid(), t.TempDir()
	if owner == 0 {
		owner = 65534
	}
	if err := os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600); err != nil { // of an earlier command
		t.Fatal(err)
	}
	if err := os.Chown(dir, owner, -1); err != nil {
		t.Fatal(err)
	}
	c := config.Config{DataDir: dir}
	for name, lock := range map[string]func(config.Config) (*Lock, error){"lock": LockFolder, "promote.lock": LockMove} {
		f, err := lock(c)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, err := f.file.Stat()
		if err != nil {
			t.Fatal(err)
		}
		if of := info.Sys().(*syscall.Stat_t); int(of.Uid) != owner || info.Mode().Perm() != 0o600 {
			t.Errorf("%s belongs to %d:%d and has mode %v", name, of.Uid, of.Gid, info.Mode())
		}
	}
}

// The error about a lock of another user says what to do.
func TestLockOfAnotherUser(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "promote.lock")
	if err := os.WriteFile(path, nil, 0o000); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		for up := dir; strings.HasPrefix(up, os.TempDir()+"/"); up = filepath.Dir(up) {
			if err := os.Chmod(up, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread with the changed user id ends with the goroutine
		if os.Getuid() == 0 {
			syscall.RawSyscall(syscall.SYS_SETFSUID, 65534, 0, 0)
		}
		_, err := LockMove(config.Config{DataDir: dir})
		failed <- err
	}()
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "permission denied") ||
		!strings.HasSuffix(err.Error(), "run `chown --reference="+dir+" "+path+"` as root") {
		t.Errorf("it says %v", err)
	}
}
