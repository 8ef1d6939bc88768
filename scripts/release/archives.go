package main

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"
)

// entry is a file or folder of an archive. A folder's name ends with "/".
type entry struct {
	name  string
	from  string // file with the content, or "" if text is the content
	text  []byte
	mode  int64
	owner int // user and group id
}

// archives makes a compressed archive for each platform.
func (b *build) archives(context.Context) error {
	handbook, err := filepath.Glob(filepath.Join(b.source, "docs/operating/*.md"))
	if err != nil {
		return fmt.Errorf("list the pages for operators: %w", err)
	}
	for _, p := range b.chosen() {
		folder := fmt.Sprintf("postrider_%s_%s_%s", b.version, p.os, p.arch)
		entries := []entry{{name: folder + "/", mode: 0o755}, {name: folder + "/postrider", from: b.binary(p), mode: 0o755}}
		for _, name := range []string{"README.md", "LICENSE", "CHANGELOG.md", "docs/operating.md", "docs/configuration.md"} {
			entries = append(entries, entry{name: path.Join(folder, path.Base(name)), from: filepath.Join(b.source, name),
				mode: 0o644})
		}
		entries = append(entries, entry{name: folder + "/operating/", mode: 0o755})
		for _, page := range handbook {
			entries = append(entries, entry{name: path.Join(folder, "operating", filepath.Base(page)), from: page,
				mode: 0o644})
		}
		entries = append(entries, entry{name: folder + "/third-party-licenses.txt", from: b.licensesFile(), mode: 0o644})
		if p.os == "linux" {
			entries = append(entries, entry{name: folder + "/postrider.service",
				from: filepath.Join(b.source, "deploy/systemd/postrider.service"), mode: 0o644})
		}
		if err := b.writeFile(folder+".tar.gz", func(w io.Writer) error { return writeTarGz(w, b.date, entries) }); err != nil {
			return err
		}
	}
	return nil
}

// writeFile creates a file of the release.
func (b *build) writeFile(name string, write func(io.Writer) error) error {
	f, err := os.Create(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// writeTarGz writes a compressed archive with a fixed time, and without names of users.
func writeTarGz(w io.Writer, date time.Time, entries []entry) error {
	z := gzip.NewWriter(w)
	return errors.Join(writeTar(z, date, entries), z.Close())
}

func writeTar(w io.Writer, date time.Time, entries []entry) error {
	t := tar.NewWriter(w)
	for _, e := range entries {
		if err := writeEntry(t, date, e); err != nil {
			return fmt.Errorf("archive %s: %w", e.name, err)
		}
	}
	return t.Close()
}

func writeEntry(t *tar.Writer, date time.Time, e entry) error {
	text := e.text
	if e.from != "" {
		var err error
		if text, err = os.ReadFile(e.from); err != nil {
			return err
		}
	}
	h := &tar.Header{Name: e.name, Mode: e.mode, Size: int64(len(text)), ModTime: date, Uid: e.owner, Gid: e.owner,
		Typeflag: tar.TypeReg, Format: tar.FormatUSTAR}
	if e.name[len(e.name)-1] == '/' {
		h.Typeflag = tar.TypeDir
	}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err := t.Write(text)
	return err
}
