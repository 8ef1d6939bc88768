package apply

import (
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// WriteFile removes the temporary files of writers that were killed, but neither those of running writers nor other
// files.
func TestWriteFileRemovesTemporaryFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "[secrets].json")
	for _, name := range []string{"[secrets].json.partial-1", "[secrets].json.partial-2", "secrets.json.partial-3"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("re_"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writer, err := os.Open(filepath.Join(dir, "[secrets].json.partial-2"))
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	if err := syscall.Flock(int(writer.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	want := []string{"[secrets].json", "[secrets].json.partial-2", "secrets.json.partial-3"}
	if text, err := os.ReadFile(path); err != nil || string(text) != "{}\n" || !slices.Equal(names, want) {
		t.Errorf("the folder has %q, the file %q, error %v", names, text, err)
	}
}
