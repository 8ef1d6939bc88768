package archive_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/archive"
)

// files are the entries of the test's archive.
var files = map[string]string{"postrider.db": strings.Repeat("row ", 5000), "blobs/aa/one": "1", "blobs/bb/two=2": ""}

var order = []string{"postrider.db", "blobs/aa/one", "blobs/bb/two=2"}

func write(t *testing.T, passphrase string) []byte {
	t.Helper()
	dir := t.TempDir()
	var out bytes.Buffer
	a, err := archive.NewWriter(&out, passphrase, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range order {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(files[name]), 0o600); err != nil {
			t.Fatal(err)
		}
		if n, err := a.Add(path, name); err != nil || n != int64(len(files[name])) {
			t.Fatalf("add %s: %d, %v", name, n, err)
		}
	}
	if _, err := a.Add(filepath.Join(dir, "none"), "blobs/cc/none"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("add a file that does not exist: %v", err)
	}
	err = a.Close(archive.Manifest{Program: "v9", MadeAt: time.Unix(1e9, 0).UTC(), Blobs: 2,
		Tables: map[string]int64{"teams": 3}})
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(dir, ".manifest-*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	return out.Bytes()
}

func read(t *testing.T, in []byte, passphrase string) (map[string]string, archive.Manifest, error) {
	t.Helper()
	got := map[string]string{}
	m, err := archive.Read(bytes.NewReader(in), passphrase, t.TempDir(), func(name string, size int64, r io.Reader) error {
		text, err := io.ReadAll(r)
		got[name] = string(text)
		return err
	})
	return got, m, err
}

func TestReadsWhatWasWritten(t *testing.T) {
	t.Parallel()
	for _, passphrase := range []string{"", "correct horse"} {
		in := write(t, passphrase)
		if passphrase != "" && bytes.Contains(in, []byte("row row")) {
			t.Error("the content shows in an encrypted archive")
		}
		got, m, err := read(t, in, passphrase)
		if err != nil || m.Program != "v9" || m.Format != archive.Format || m.Tables["teams"] != 3 {
			t.Fatalf("passphrase %q: %+v, %v", passphrase, m, err)
		}
		for name, want := range files {
			if got[name] != want {
				t.Errorf("%s has %d bytes, want %d", name, len(got[name]), len(want))
			}
		}
	}
}

func TestWrongPassphrase(t *testing.T) {
	t.Parallel()
	in := write(t, "correct horse")
	if got, _, err := read(t, in, "wrong horse"); !errors.Is(err, archive.ErrPassphrase) || len(got) > 0 {
		t.Errorf("a wrong passphrase: %v", err)
	}
	if got, _, err := read(t, in, ""); !errors.Is(err, archive.ErrNeedsPassphrase) || len(got) > 0 {
		t.Errorf("no passphrase: %v", err)
	}
}

// An archive that was cut off anywhere, or that has another byte anywhere but in padding, is not read as whole.
func TestDamagedArchives(t *testing.T) {
	t.Parallel()
	plain := write(t, "")
	manifest := bytes.Index(plain, []byte("manifest.json"))
	ends := bytes.LastIndex(plain, []byte("}\n")) // the end of the last line of the manifest
	for n := 0; n < ends; n += 97 {
		if _, _, err := read(t, plain[:n], ""); err == nil {
			t.Errorf("the first %d bytes of %d were read as an archive", n, len(plain))
		}
	}
	if _, _, err := read(t, plain[:manifest], ""); err == nil {
		t.Error("an archive without its manifest was read")
	}
	at := bytes.Index(plain, []byte("row row"))
	for _, i := range []int{at, at + 9000, ends - 10} {
		other := bytes.Clone(plain)
		other[i] ^= 1
		if _, _, err := read(t, other, ""); err == nil {
			t.Errorf("an archive with another byte at %d was read", i)
		}
	}
	sealed := write(t, "correct horse")
	for _, other := range [][]byte{sealed[:len(sealed)-1], sealed[:len(sealed)/2], flip(sealed, len(sealed)-1),
		flip(sealed, len(sealed)/2)} {
		if _, _, err := read(t, other, "correct horse"); err == nil {
			t.Errorf("a damaged encrypted archive of %d bytes was read", len(other))
		}
	}
}

func flip(in []byte, at int) []byte {
	other := bytes.Clone(in)
	other[at] ^= 1
	return other
}

func TestNoArchive(t *testing.T) {
	t.Parallel()
	for _, in := range []string{"", "x", strings.Repeat("not a tar file", 100)} {
		if _, _, err := read(t, []byte(in), ""); err == nil {
			t.Errorf("%.20q was read as an archive", in)
		}
	}
}
