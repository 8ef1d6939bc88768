package keyring

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

func TestLoadOrCreate(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "data", "secret.key")
	made, created, err := LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the key file has mode %04o, want 0600", info.Mode().Perm())
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v; want the key file alone", entries, err)
	}
	found, again, err := LoadOrCreate(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want := string(made.key("seal", "x"))
	if !created || again {
		t.Errorf("created: %v, then %v", created, again)
	}
	if string(found.key("seal", "x")) != want || string(parsed.key("seal", "x")) != want {
		t.Error("the key that was made, found and parsed are not one")
	}
}

func TestLoadOrCreateAgrees(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "secret.key")
	keys := make([]string, 8)
	var wg sync.WaitGroup
	var made atomic.Int32
	for i := range keys {
		wg.Go(func() {
			k, created, err := LoadOrCreate(path)
			if err != nil {
				t.Error(err)
				return
			}
			if keys[i] = string(k.key("seal", "x")); created {
				made.Add(1)
			}
		})
	}
	wg.Wait()
	for i, k := range keys {
		if k != keys[0] {
			t.Errorf("start %d has a key of its own", i)
		}
	}
	if made.Load() != 1 {
		t.Errorf("%d starts created the key", made.Load())
	}
}

func TestLoadOrCreateRefuses(t *testing.T) {
	t.Parallel()
	good := strings.Repeat("ab", MasterSize)
	tests := []struct {
		name, text string
		mode       os.FileMode
		want       string
	}{
		{"readable by the group", good, 0o640, "run `chmod 600"},
		{"readable by all", good, 0o604, "run `chmod 600"},
		{"empty", "", 0o600, "64 hexadecimal digits"},
		{"cut", good[:60], 0o600, "64 hexadecimal digits"},
		{"not hexadecimal", strings.Repeat("xy", MasterSize), 0o600, "64 hexadecimal digits"},
		{"a long file", strings.Repeat("ab", 4096), 0o600, "64 hexadecimal digits"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "secret.key")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, tt.mode); err != nil {
				t.Fatal(err)
			}
			_, _, err := LoadOrCreate(path)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("LoadOrCreate: %v; want an error with %q", err, tt.want)
			}
			if tt.text != "" && strings.Contains(err.Error(), tt.text) {
				t.Errorf("the error shows the key: %v", err)
			}
			if after, err := os.ReadFile(path); err != nil || string(after) != tt.text {
				t.Errorf("the file was changed to %q, %v", after, err)
			}
		})
	}
}

func TestParseIgnoresWhiteSpaceAndCase(t *testing.T) {
	t.Parallel()
	low, err := Parse(strings.Repeat("ab", MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	up, err := Parse("  " + strings.Repeat("AB", MasterSize) + "\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if string(low.root) != string(up.root) {
		t.Error("two spellings gave two keys")
	}
}
