package fileperm

import (
	"os"
	"path/filepath"
	"testing"
)

func mode(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode() & (os.ModePerm | os.ModeSetgid)
}

func TestPrivate(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	dir, file := filepath.Join(top, "a", "b"), filepath.Join(top, "a", "b", "file")
	for range 2 {
		if err := Dir(dir); err != nil {
			t.Fatal(err)
		}
		if err := File(file); err != nil {
			t.Fatal(err)
		}
		if mode(t, dir) != 0o700 || mode(t, file) != 0o600 {
			t.Errorf("the folder has mode %o, the file %o", mode(t, dir), mode(t, file))
		}
		if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o755|os.ModeSetgid); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := Mend(dir); err != nil || mode(t, dir) != 0o700|os.ModeSetgid {
			t.Errorf("the folder has mode %v, %v", mode(t, dir), err)
		}
		if err := Mend(file); err != nil || mode(t, file) != 0o600 {
			t.Errorf("the file has mode %o, %v", mode(t, file), err)
		}
		if text, err := os.ReadFile(file); err != nil || string(text) != "kept" {
			t.Errorf("the file has %q, %v", text, err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Mend(filepath.Join(top, "nothing")); err != nil {
		t.Errorf("what is not there: %v", err)
	}
	if err := Dir(file); err == nil {
		t.Error("a file is taken for a folder")
	}
}

func TestExposed(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if Exposed(file) != 0 {
		t.Error("a missing file is exposed")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for mode, exposed := range map[os.FileMode]bool{0o600: false, 0o440: false, 0o644: true, 0o602: true, 0o620: true} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		if got := Exposed(file); exposed && got != mode || !exposed && got != 0 {
			t.Errorf("mode %o: %o", mode, got)
		}
	}
}
