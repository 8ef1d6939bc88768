package blob_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/blob"
)

// If the folder is away, each operation fails with an outage. As soon as it is back, the same store works again.
func TestFolderThatIsAway(t *testing.T) {
	t.Parallel()
	root := filepath.Join(t.TempDir(), "blobs")
	s, err := blob.Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	put := func(ctx context.Context, r io.Reader) error {
		_, err := s.Put(ctx, "a", r)
		return err
	}
	get := func(ctx context.Context) error {
		r, err := s.Get(ctx, "a")
		if err == nil {
			defer r.Close()
			_, err = io.ReadAll(r)
		}
		return err
	}
	outages := func(want bool) {
		t.Helper()
		for what, err := range map[string]error{"put": put(t.Context(), strings.NewReader("x")), "get": get(t.Context()),
			"delete": s.Delete(t.Context(), "b")} {
			if fault.IsOutage(err) != want || !want && err != nil {
				t.Errorf("%s: %v is an outage: %v", what, err, fault.IsOutage(err))
			}
		}
	}
	outages(false)
	if err := os.Rename(root, root+".away"); err != nil {
		t.Fatal(err)
	}
	outages(true)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := put(ended, strings.NewReader("x")); err == nil || fault.IsOutage(err) {
		t.Errorf("the end of the caller's context is an outage: %v", err)
	}
	if err := os.Rename(root+".away", root); err != nil {
		t.Fatal(err)
	}
	outages(false)
	theirs := errors.New("their error")
	if err := put(t.Context(), iotest.ErrReader(theirs)); !errors.Is(err, theirs) || fault.IsOutage(err) {
		t.Errorf("an error of the content is an outage: %v", err)
	}
	if _, err := s.Get(t.Context(), "nothing"); !errors.Is(err, blob.ErrNotFound) || fault.IsOutage(err) {
		t.Errorf("a missing blob is an outage: %v", err)
	}
}

// A blob in a folder can be read from any position. An error while it is read is an outage.
func TestReadersOfAFolder(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	s, err := blob.Open(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "a", strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	r, err := s.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.(io.Seeker).Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if rest, err := io.ReadAll(r); string(rest) != "tent" || err != nil {
		t.Errorf("read %q, %v", rest, err)
	}
	r.Close()
	paths, err := filepath.Glob(filepath.Join(root, "*", "a"))
	if err != nil || len(paths) != 1 {
		t.Fatal(paths, err)
	}
	// A folder can be opened like a file but cannot be read.
	if err := errors.Join(os.Remove(paths[0]), os.Mkdir(paths[0], 0o700)); err != nil {
		t.Fatal(err)
	}
	if r, err = s.Get(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadAll(r); !fault.IsOutage(err) {
		t.Errorf("a file that cannot be read is no outage: %v", err)
	}
}
