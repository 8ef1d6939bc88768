package blob

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func TestFolderKeepsModesAndNames(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "blobs")
	s := open(t, root)
	put(t, s, "raw/1", "x")
	files := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s can be seen by others: %v", path, info.Mode())
		}
		if !e.IsDir() && e.Name() != holdName {
			files++
			if filepath.Base(path) != "raw=1" {
				t.Errorf("the blob is at %s", path)
			}
		}
		return nil
	})
	if err != nil || files != 1 {
		t.Errorf("%d files, %v; want one", files, err)
	}
	if again := open(t, root); get(t, again, "raw/1") != "x" {
		t.Error("the blob is not there after opening again")
	}
}

func TestFolderSweepsWhatWasLeft(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	open(t, root)
	left, busy := filepath.Join(root, tmpName, "put-1"), filepath.Join(root, tmpName, "put-2")
	for _, path := range []string{left, busy} {
		if err := os.WriteFile(path, []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	old := time.Now().Add(-tmpAge - time.Minute)
	if err := os.Chtimes(left, old, old); err != nil {
		t.Fatal(err)
	}
	open(t, root)
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an old leftover stays: %v", err)
	}
	if _, err := os.Stat(busy); err != nil {
		t.Errorf("what another process writes was swept: %v", err)
	}
}

// noLeftovers fails if a Put left a temporary file.
func noLeftovers(t *testing.T, root string) {
	t.Helper()
	left, err := os.ReadDir(filepath.Join(root, tmpName))
	if err != nil || len(left) != 0 {
		t.Errorf("temporary files: %v, %v; want none", left, err)
	}
}

func TestFolderPutFailures(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := open(t, root)
	t.Run("a full disk of the reader is not ours", func(t *testing.T) {
		_, err := s.Put(t.Context(), "a", iotest.ErrReader(syscall.ENOSPC))
		if !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFull) {
			t.Errorf("Put: %v; want ENOSPC, not ErrFull", err)
		}
		noLeftovers(t, root)
	})
	t.Run("the place of the blob is taken", func(t *testing.T) {
		if err := os.MkdirAll((&folder{root: root}).path("b")+"/x", 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Put(t.Context(), "b", strings.NewReader("x")); err == nil {
			t.Error("Put succeeded")
		}
		noLeftovers(t, root)
	})
	t.Run("the root is a file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(t.Context(), path); err == nil {
			t.Error("Open took a file for a folder")
		}
	})
}

func TestFull(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"disk full", &fs.PathError{Op: "write", Err: syscall.ENOSPC}, true},
		{"quota", errors.Join(&fs.PathError{Op: "sync", Err: syscall.EDQUOT}, nil), true},
		{"bad disk", &fs.PathError{Op: "write", Err: syscall.EIO}, false},
		{"theirs", &sourceError{syscall.ENOSPC}, false},
	}
	for _, tt := range tests {
		if got := full(tt.err); errors.Is(got, ErrFull) != tt.want || !errors.Is(got, tt.err) {
			t.Errorf("%s: full(%v) = %v", tt.name, tt.err, got)
		}
	}
}

// TestFillOnAFullDevice writes to a device that is always full, if the system has one.
func TestFillOnAFullDevice(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		return
	}
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = fill(f, &source{ctx: t.Context(), r: strings.NewReader("x")})
	if !errors.Is(full(err), ErrFull) {
		t.Errorf("fill: %v, want ErrFull", err)
	}
	if err := f.Close(); !errors.Is(err, fs.ErrClosed) {
		t.Error("fill left the file open")
	}
}

// A missing folder is not reported as a missing blob.
func TestFolderThatIsAway(t *testing.T) {
	t.Parallel()
	where := filepath.Join(t.TempDir(), "blobs")
	s := open(t, where)
	put(t, s, "raw/1", "one")
	if err := os.Rename(where, where+".away"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"raw/1", "raw/none"} {
		if _, err := s.Get(t.Context(), key); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("Get %s: %v", key, err)
		}
	}
	if err := os.Rename(where+".away", where); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "raw/1"); got != "one" {
		t.Errorf("back again it reads %q", got)
	}
}
