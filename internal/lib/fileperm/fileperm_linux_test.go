package fileperm

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// If another user owns the file, Mend fails with an error that contains the command to run.
func TestCannotBeMended(t *testing.T) {
	t.Parallel()
	const nobody = 65534
	path := "/etc/passwd" // others can read this file, and only root can change its mode
	if os.Getuid() == 0 {
		path = filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
		for dir := filepath.Dir(path); strings.HasPrefix(dir, os.TempDir()+"/"); dir = filepath.Dir(dir) {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread with the changed user id ends with the goroutine
		syscall.RawSyscall(syscall.SYS_SETFSUID, nobody, 0, 0)
		failed <- Mend(path)
	}()
	if err := <-failed; err == nil || !strings.HasSuffix(err.Error(), "run `chmod go= "+path+"` as its owner") {
		t.Errorf("it says %v", err)
	}
}

// Newly created files and folders give their owner all permissions, regardless of the umask.
func TestUmask(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	defer syscall.Umask(syscall.Umask(0o777))
	if err := Dir(dir); err != nil || mode(t, dir) != 0o700 {
		t.Errorf("the folder has mode %o, %v", mode(t, dir), err)
	}
	if file := filepath.Join(dir, "file"); File(file) != nil || mode(t, file) != 0o600 {
		t.Errorf("the file has mode %o", mode(t, file))
	}
}
