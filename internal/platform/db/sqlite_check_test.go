package db_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// opened opens a file as a node does, or as a command does while a node is running, and returns the log output.
func opened(t *testing.T, path string, beside bool) (d *db.DB, said string, err error) {
	t.Helper()
	var log bytes.Buffer
	d, err = db.Open(t.Context(), db.Options{URL: path, Log: slog.New(slog.NewTextHandler(&log, nil)), Beside: beside})
	return d, log.String(), err
}

// expect opens an undamaged file, verifies that the integrity check ran or was skipped as expected, and closes the
// file.
func expect(t *testing.T, what, path string, beside, looked bool) {
	t.Helper()
	d, said, err := opened(t, path, beside)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	d.Close()
	if strings.Contains(said, "checking it") != looked || strings.Contains(said, "the database is whole") != looked {
		t.Errorf("%s: it said %q", what, said)
	}
}

// filled creates a database of several hundred pages and leaves the database open.
func filled(t *testing.T, path string) *db.DB {
	t.Helper()
	d, _, err := opened(t, path, false)
	if err != nil {
		t.Fatal(err)
	}
	makeTable(t, d)
	err = d.Update(t.Context(), func(tx *db.Tx) error {
		for i := range 5000 {
			tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $2, $3, $4, $5)`, fmt.Sprint("id", i),
				fmt.Sprint("name ", i, strings.Repeat("x", 100)), i, true, []byte{})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// copied makes a copy of a database and its auxiliary files, as `cp` does.
func copied(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	all, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range all {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(to+strings.TrimPrefix(from, path), content, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// A node checks a file for damage only if the file was not closed cleanly.
func TestWhatIsLookedAt(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	expect(t, "a command makes the file", path, true, false)
	expect(t, "the first start", path, false, false)
	d := filled(t, path)
	running := copied(t, path)
	expect(t, "a command beside the node", path, true, false)
	d.Close()
	expect(t, "after a stop", path, false, false)
	expect(t, "a command after a stop", path, true, false)
	d, _, err := opened(t, path, true)
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), d, "more", "more", -1); err != nil {
		t.Fatal(err)
	}
	d.Close()
	expect(t, "after a command that wrote", path, false, false)

	// After kill -9, a write-ahead log exists and the stop mark does not.
	expect(t, "after a kill", running, false, true)
	expect(t, "after a kill and a stop", running, false, false)
	other := copied(t, path)
	expect(t, "a copy", other, false, true)
	expect(t, "the copy again", other, false, false)
	expect(t, "a command beside a copy", copied(t, path), true, false)
}

// A node refuses to start with a damaged file, and the error says what to do.
func TestDamagedFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "a.db")
	filled(t, path).Close()
	for what, damage := range map[string]func(f *os.File, size int64) error{
		"a page of another kind": func(f *os.File, size int64) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xab}, 8192), size/2/8192*8192)
			return err
		},
		"the end is missing": func(f *os.File, size int64) error { return f.Truncate(size / 2 / 8192 * 8192) },
		"no database": func(f *os.File, _ int64) error {
			_, err := f.WriteAt([]byte("hello, world, hello"),
				0)
			return err
		},
		"pages from another time": func(f *os.File, size int64) error {
			later := io.NewSectionReader(f, size/2/8192*8192, 40*8192)
			_, err := io.Copy(io.NewOffsetWriter(f, size/4/8192*8192), later)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			bad := copied(t, path)
			f, err := os.OpenFile(bad, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			info, err := f.Stat()
			if err == nil {
				err = damage(f, info.Size())
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second start must fail too
				d, said, err := opened(t, bad, false)
				if err == nil {
					d.Close()
					t.Fatalf("a node starts on it; it said %s", said)
				}
				for _, want := range []string{bad, "is damaged", "restore the last backup", ".recover"} {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("it does not say %q: %v", want, err)
					}
				}
			}
		})
	}
}

// A snapshot is complete and consistent even if rows are written while it is made.
func TestSnapshot(t *testing.T) {
	t.Parallel()
	d := filled(t, filepath.Join(t.TempDir(), "a.db"))
	defer d.Close()
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // writes pairs of rows; a snapshot must contain both rows of a pair or neither
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE things SET n = n + 100000 WHERE id = $1`, fmt.Sprint("id", i%2500))
				tx.Queue(t.Context(), `UPDATE things SET n = n - 100000 WHERE id = $1`, fmt.Sprint("id", 4999-i%2500))
				return nil
			})
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	for i := range 5 {
		to := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.WriteFile(to, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := d.Snapshot(t.Context(), to); err != nil {
			t.Fatal(err)
		}
		copied, said, err := opened(t, to, false)
		if err != nil || !strings.Contains(said, "the database is whole") {
			t.Fatalf("%v, it said %q", err, said)
		}
		var rows, sum int
		err = copied.QueryRow(t.Context(), `SELECT COUNT(*), SUM(n) FROM things`).Scan(&rows, &sum)
		if err != nil || rows != 5000 || sum != 5000*4999/2 {
			t.Errorf("%d rows with the sum %d, %v", rows, sum, err)
		}
		copied.Close()
		info, err := os.Stat(to)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
	close(stop)
	<-stopped
	if err := d.Snapshot(t.Context(), filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("a snapshot into a folder that is not there")
	}
}
