package dbtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// Unreadable makes reads from an open SQLite database fail, as they would on a failing disk, until mend is called.
// Unreadable replaces the database's file descriptors with write-only descriptors. Pages in a connection's cache are
// not read again; a write invalidates the caches of the other connections.
func Unreadable(t testing.TB, path string) (mend func()) {
	t.Helper()
	return reopen(t, path, syscall.O_WRONLY)
}

// Unwritable makes writes to an open SQLite database fail, as they would on a failing disk, until mend is called. It
// replaces the database's file descriptors with read-only descriptors.
func Unwritable(t testing.TB, path string) (mend func()) {
	t.Helper()
	return reopen(t, path, syscall.O_RDONLY)
}

// reopen replaces the descriptors of an open SQLite database with descriptors of another mode, until mend is called.
func reopen(t testing.TB, path string, mode int) (mend func()) {
	t.Helper()
	saved := map[int]int{} // duplicates of SQLite's descriptors, by descriptor
	mend = func() {
		t.Helper()
		for fd, was := range saved {
			if err := syscall.Dup3(was, fd, syscall.O_CLOEXEC); err != nil {
				t.Error(err)
			}
			syscall.Close(was)
		}
		clear(saved)
	}
	t.Cleanup(mend)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range fds {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", entry.Name()))
		if err != nil || name != path && name != path+"-wal" {
			continue // a descriptor for another file, or a descriptor that has been closed
		}
		fd, err := strconv.Atoi(entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		was, err := replace(fd, name, mode)
		if err != nil {
			t.Fatal(err)
		}
		saved[fd] = was
	}
	if len(saved) < 2 {
		t.Fatalf("%d descriptors of %s are open", len(saved), path)
	}
	return mend
}

// replace replaces a descriptor with a descriptor of another mode for the same file, and returns a duplicate of the
// original descriptor.
func replace(fd int, name string, mode int) (was int, err error) {
	other, err := syscall.Open(name, mode|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s: %w", name, err)
	}
	defer syscall.Close(other)
	if was, err = syscall.Dup(fd); err != nil {
		return 0, fmt.Errorf("keep %s: %w", name, err)
	}
	syscall.CloseOnExec(was)
	return was, syscall.Dup3(other, fd, syscall.O_CLOEXEC)
}
