package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Packages compare versions in the order of semantic versions, and pseudo-versions come before the first release.
func TestPackageVersion(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]string{
		"0.1.0": "0.1.0", "0.2.0-rc.1": "0.2.0~rc.1", "0.1.0+dirty": "0.1.0",
		"0.0.0-20261130033206-0123456789ab": "0.0.0~20261130033206.0123456789ab",
	} {
		if got := packageVersion(version); got != want {
			t.Errorf("%s becomes %s, want %s", version, got, want)
		}
	}
}

// An archive has the same bytes whenever and by whomever it is written.
func TestArchiveIsTheSameEachTime(t *testing.T) {
	t.Parallel()
	date := time.Unix(1_800_000_000, 0)
	pack := func(mode os.FileMode) []byte {
		name := filepath.Join(t.TempDir(), "program")
		if err := os.WriteFile(name, []byte("program"), mode); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := writeTarGz(&b, date, []entry{{name: "x/", mode: 0o755}, {name: "x/program", from: name, mode: 0o755},
			{name: "x/note", text: []byte("note"), mode: 0o644, owner: 7}}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	if !bytes.Equal(pack(0o600), pack(0o777)) {
		t.Error("the archives differ")
	}
	var b bytes.Buffer
	if err := writeTar(&b, date, []entry{{name: "none", from: filepath.Join(t.TempDir(), "none")}}); err == nil {
		t.Error("a missing file was archived")
	}
	b.Reset()
	if err := writeTar(&b, date, []entry{{name: "d/", mode: 0o700, owner: 7}}); err != nil {
		t.Fatal(err)
	}
	h, err := tar.NewReader(&b).Next()
	if err != nil || h.Typeflag != tar.TypeDir || h.Uid != 7 || h.Gid != 7 || !h.ModTime.Equal(date) || h.Mode != 0o700 {
		t.Errorf("the folder has %+v, %v", h, err)
	}
}

// Files that differ between two builds, or exist in one of them only, are named.
func TestCompare(t *testing.T) {
	t.Parallel()
	write := func(folder, name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first, second := t.TempDir(), t.TempDir()
	write(first, "same", "a")
	write(second, "same", "a")
	if err := compare(first, second); err != nil {
		t.Error(err)
	}
	write(first, "changed", "a")
	write(second, "changed", "b")
	write(second, "added", "c")
	if err := compare(first, second); err == nil || !strings.HasSuffix(err.Error(), "differ in changed, added") {
		t.Errorf("the error is %v", err)
	}
}

// The layout holds each blob once.
func TestLayoutHoldsABlobOnce(t *testing.T) {
	t.Parallel()
	l := &layout{}
	first, second := l.add("a", []byte("text")), l.add("b", []byte("text"))
	if len(l.blobs) != 1 || first.Digest != second.Digest || first.Size != 4 {
		t.Errorf("%d blobs, %+v and %+v", len(l.blobs), first, second)
	}
	var b bytes.Buffer
	if err := writeTar(&b, time.Unix(0, 0), l.blobs); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, &b); err != nil {
		t.Fatal(err)
	}
}
