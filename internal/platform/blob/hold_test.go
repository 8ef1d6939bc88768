package blob

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// contents returns the contents of the files that Each reports, keyed by name.
func (h *Held) contents(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := h.Each(t.Context(), func(f File) error {
		content, err := os.ReadFile(f.Path)
		if err == nil {
			found[f.Name] = string(content)
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// Blobs that are deleted during a hold are visible to the holder only.
func TestHold(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "a/1", "one")
	put(t, s, "a/2", "two")
	put(t, s, "b", "three")
	held, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := held.contents(t)
	if len(before) != 3 {
		t.Fatalf("held: %v", before)
	}
	for _, key := range []string{"a/1", "b", "b", "never"} {
		if err := s.Delete(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if _, err := s.Get(t.Context(), "a/1"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Get of a deleted blob: %v", err)
	}
	other := open(t, root) // simulates another process that starts during the hold
	if diff := cmp.Diff(map[string]int64{"a/2": 3}, list(t, other, "")); diff != "" {
		t.Errorf("others see (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(before, held.contents(t)); diff != "" {
		t.Errorf("the holder sees (-want +got):\n%s", diff)
	}
	// If the files are copied to another folder under the names that Each reports, the copy is a store with the same
	// blobs.
	restored := t.TempDir()
	for name, content := range before {
		path := filepath.Join(restored, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := get(t, open(t, restored), "a/1"); got != "one" {
		t.Errorf("restored: %q", got)
	}
	if err := held.Release(); err != nil {
		t.Error(err)
	}
	again, err := other.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{nameOf("a/2", s): "two"}, again.contents(t)); diff != "" {
		t.Errorf("after it was let go (-want +got):\n%s", diff)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Hold(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a second holder: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), "a/2"); err != nil || len(list(t, s, "")) > 0 {
		t.Errorf("Delete: %v", err)
	}
	if left, err := os.ReadDir(filepath.Join(root, keptName)); err != nil || len(left) > 0 {
		t.Errorf("kept: %v, %v", left, err)
	}
	if _, err := open(t, "mem://").Hold(t.Context()); !errors.Is(err, ErrNoFolder) {
		t.Errorf("of a bucket: %v", err)
	}
}

func nameOf(key string, s *Store) string {
	f := s.b.(*folder)
	return f.file(f.path(key), key).Name
}

// If a process is killed during a Hold, opening the folder deletes the kept files and ends the hold.
func TestHolderKilled(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s := open(t, root)
	put(t, s, "a", "one")
	held, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	held.unlock() // simulates the end of the process
	open(t, root)
	if left, err := os.ReadDir(filepath.Join(root, keptName)); err != nil || len(left) > 0 {
		t.Errorf("kept: %v, %v", left, err)
	}
}

// Each reports all blobs that existed when the hold began, even if blobs are deleted in the meantime.
func TestHoldMissesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir())
	const n = 600
	for i := range n {
		put(t, s, fmt.Sprintf("k/%d", i), fmt.Sprint(i))
	}
	held, err := s.Hold(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range n {
			if err := s.Delete(t.Context(), fmt.Sprintf("k/%d", n-1-i)); err != nil {
				t.Error(err)
			}
		}
	}()
	if found := held.contents(t); len(found) != n {
		t.Errorf("%d of %d blobs", len(found), n)
	}
	<-done
	if err := held.Release(); err != nil {
		t.Error(err)
	}
}
