package db_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Ids are stored in 16 bytes and NULL, are read as they were written, sort as their texts do, and can be in lists of
// any length.
func TestIDs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		a, b, c := id.New(), id.New(), id.New()
		kind := map[string]string{"sqlite": "BLOB", "postgres": "UUID"}[d.Engine()]
		err := d.Update(ctx, func(tx *db.Tx) error {
			if _, err := tx.Exec(ctx, `CREATE TABLE pairs (id `+kind+` PRIMARY KEY, other `+kind+`)`); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, `INSERT INTO pairs (id, other) VALUES ($1, $2)`, db.ID(b), db.ID("")); err != nil {
				return err
			}
			_, err := tx.InsertRows(ctx, `pairs (id, other)`, "", db.IDs([]string{c, a, string(db.NoID)}),
				[]db.ID{db.ID(a), "", db.OrNoID("")})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		read := func(where string, args ...any) (all [][2]string) {
			t.Helper()
			rows, err := d.Query(ctx, `SELECT id, other FROM pairs WHERE `+where+` ORDER BY id`, args...)
			all, err = db.Collect(rows, err, func(r db.Row) (p [2]string, err error) {
				err = r.Scan((*db.ID)(&p[0]), (*db.ID)(&p[1]))
				return p, err
			})
			if err != nil {
				t.Error(err)
			}
			return all
		}
		for _, x := range []struct {
			where string
			args  []any
			want  [][2]string
		}{
			{`TRUE`, nil, [][2]string{{"", ""}, {a, ""}, {b, ""}, {c, a}}},
			{`id = $1`, []any{db.ID(c)}, [][2]string{{c, a}}},
			{`id > $1`, []any{db.ID(a)}, [][2]string{{b, ""}, {c, a}}},
			{`other IS NULL AND id <> $1`, []any{db.NoID}, [][2]string{{a, ""}, {b, ""}}},
			{`id = ANY($1)`, []any{db.IDs([]string{a})}, [][2]string{{a, ""}}},
			{`id = ANY($1)`, []any{db.IDs([]string{a, b})}, [][2]string{{a, ""}, {b, ""}}},
			{`id = ANY($1)`, []any{db.IDs(nil)}, nil},
			{`id <> ALL($1)`, []any{db.IDs([]string{a, b})}, [][2]string{{"", ""}, {c, a}}},
			{`id IN (SELECT UNNEST(CAST($1 AS UUID[])))`, []any{db.IDs([]string{a, c})}, [][2]string{{a, ""}, {c, a}}},
		} {
			if diff := cmp.Diff(x.want, read(x.where, x.args...)); diff != "" {
				t.Errorf("%s: %s", x.where, diff)
			}
		}
		var all []db.ID
		err = db.Walk(ctx, d.Reader, "pairs WHERE other IS NULL", "id", nil, func(after, upTo db.ID) error {
			all = append(all, after, upTo)
			return nil
		})
		if want := []db.ID{db.NoID, db.ID(b)}; err != nil || !slices.Equal(all, want) {
			t.Errorf("walked over %q, want %q, %v", all, want, err)
		}
		for _, wrong := range []string{"acme", a[:35], a + "0", "z" + a[1:], "019a0000x0000-7000-8000-000000000001"} {
			var n int
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM pairs WHERE id = $1`, db.ID(wrong)).Scan(&n); err == nil {
				t.Errorf("%q is taken for an id", wrong)
			}
			err := d.Update(ctx, func(tx *db.Tx) error {
				tx.Queue(ctx, `DELETE FROM pairs WHERE id = $1`, db.ID(wrong))
				return nil
			})
			if err == nil || errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrUnknown) {
				t.Errorf("a queued statement with the id %q: %v", wrong, err)
			}
		}
	})
}
