package db_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/fault"
)

// A database that may grow no more is unavailable, whether a statement finds out or the commit, and so it is for all
// who share the transaction.
func TestFullDatabase(t *testing.T) {
	d := dbtest.SQLite(t)
	makeTable(t, d)
	var pages int
	if err := d.QueryRow(t.Context(), `PRAGMA page_count`).Scan(&pages); err != nil {
		t.Fatal(err)
	}
	limit := func(n int) {
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			var now int
			return tx.QueryRow(t.Context(), fmt.Sprintf(`PRAGMA max_page_count = %d`, n)).Scan(&now)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	limit(pages + 2)
	large := make([]byte, 1<<20)
	for name, write := range map[string]func(tx *db.Tx) error{
		"exec": func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('a', 'a', 1, TRUE, $1)`, large)
			return err
		},
		"queue": func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('a', 'a', 1, TRUE, $1)`, large)
			return nil
		},
	} {
		if err := d.Update(t.Context(), write); !errors.Is(err, db.ErrUnavailable) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("%s: %v, want unavailable", name, err)
		}
	}
	limit(1 << 30)
	if err := insert(t.Context(), d, "b", "b", 2); err != nil || count(t, d.Reader) != 1 {
		t.Errorf("with room again: %v", err)
	}
}
