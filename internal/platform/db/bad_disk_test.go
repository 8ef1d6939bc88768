package db_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Reads that fail because of the disk return outage errors, and succeed again once the disk works.
func TestReadsOfABadDisk(t *testing.T) {
	path := dbtest.SQLiteFile(t)
	d := dbtest.Open(t, path)
	makeTable(t, d)
	for i := range 100 {
		if err := insert(t.Context(), d, fmt.Sprint(i), fmt.Sprint(i, strings.Repeat("x", 10_000)), i); err != nil {
			t.Fatal(err)
		}
	}
	text := func(r db.Row) (s string, err error) { return s, r.Scan(&s) }
	reads := map[string]func() error{
		"a row": func() error {
			var n int
			return d.QueryRow(t.Context(), `SELECT n FROM things WHERE id = '50'`).Scan(&n)
		},
		"rows": func() error {
			rows, err := d.Query(t.Context(), `SELECT name FROM things`)
			_, err = db.Collect(rows, err, text)
			return err
		},
		"sorted rows": func() error { // SQLite reads and sorts all rows before it returns the first row
			rows, err := d.Query(t.Context(), `SELECT name FROM things ORDER BY name`)
			_, err = db.Collect(rows, err, text)
			return err
		},
		"a statement that is new": func() error {
			rows, err := d.Query(t.Context(), `SELECT name || 'new' FROM things`)
			_, err = db.Collect(rows, err, text)
			return err
		},
		"ready": func() error { return d.Ready(t.Context()) },
	}
	for name, read := range reads {
		if name != "a statement that is new" {
			if err := read(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if err := insert(t.Context(), d, "last", "last", 1000); err != nil { // a write invalidates the readers' caches
		t.Fatal(err)
	}
	mend := dbtest.Unreadable(t, path)
	for name, read := range reads {
		if err := read(); name != "ready" && (!errors.Is(err, db.ErrUnavailable) || fault.KindOf(err) != fault.Unavailable) {
			t.Errorf("%s: %v; want unavailable", name, err)
		}
	}
	mend()
	for name, read := range reads {
		if err := read(); err != nil {
			t.Errorf("%s, mended: %v", name, err)
		}
	}
}

// On a full disk, an update and all updates that share its transaction fail with an outage error.
func TestFullDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	makeTable(t, d)
	limit := func(pages int) {
		t.Helper()
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, pages))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	big := strings.Repeat("x", 1<<20)
	ways := map[string]func(ctx context.Context, tx *db.Tx) error{
		"asked for": func(ctx context.Context, tx *db.Tx) error {
			_, err := tx.Exec(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ('a', $1, 1, TRUE, '')`, big)
			return err
		},
		"queued": func(ctx context.Context, tx *db.Tx) error {
			tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ('b', $1 || 'b', 2, TRUE, '')`, big)
			return nil
		},
		"returning": func(ctx context.Context, tx *db.Tx) error {
			var n int
			return tx.QueryRow(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ('c', $1 || 'c', 3, TRUE, '') RETURNING n`,
				big).Scan(&n)
		},
	}
	limit(1) // SQLite raises the limit to the current file size
	for name, way := range ways {
		err := d.Update(t.Context(), func(tx *db.Tx) error { return way(t.Context(), tx) })
		if !errors.Is(err, db.ErrUnavailable) || !db.IsFull(err) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: %v; want unavailable", name, err)
		}
		if cause := db.Cause(err); !strings.Contains(cause, "full") {
			t.Errorf("%s: the cause is %q", name, cause)
		}
	}
	if n := count(t, d.Reader); n != 0 {
		t.Errorf("%d rows, want none", n)
	}
	limit(1 << 30)
	for name, way := range ways {
		if err := d.Update(t.Context(), func(tx *db.Tx) error { return way(t.Context(), tx) }); err != nil {
			t.Errorf("%s, with room: %v", name, err)
		}
	}
}
