package db_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestInsertRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		update := func(f func(tx *db.Tx) error) {
			t.Helper()
			if err := d.Update(ctx, f); err != nil {
				t.Fatal(err)
			}
		}
		update(func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `CREATE TABLE kept (id TEXT PRIMARY KEY, n BIGINT NOT NULL, x DOUBLE PRECISION NOT NULL,
				b BOOLEAN NOT NULL, same TEXT NOT NULL)`)
			return err
		})
		const (
			into  = `kept (id, n, x, b, same)`
			twice = `ON CONFLICT (id) DO UPDATE SET n = excluded.n WHERE kept.n <> excluded.n`
		)
		insert := func(ids []string, ns []int64, conflict string) (n int64) {
			t.Helper()
			update(func(tx *db.Tx) (err error) {
				xs, bs := make([]float64, len(ids)), make([]bool, len(ids))
				for i := range ids {
					xs[i], bs[i] = float64(i)/2, i%2 == 1
				}
				n, err = tx.InsertRows(ctx, into, conflict, ids, ns, xs, bs, "same")
				return err
			})
			return n
		}
		if n := insert([]string{"a", "b", "c"}, []int64{1, 2, 3}, ""); n != 3 {
			t.Errorf("%d rows inserted", n)
		}
		if n := insert([]string{"b", "c", "d"}, []int64{2, 30, 4}, twice); n != 2 {
			t.Errorf("%d rows inserted or updated, want those that are new or differ", n)
		}
		if n := insert([]string{"d"}, []int64{5}, `ON CONFLICT (id) DO NOTHING`); n != 0 {
			t.Errorf("%d rows inserted", n)
		}
		if n := insert([]string{}, []int64{}, ""); n != 0 {
			t.Errorf("no rows are %d", n)
		}
		update(func(tx *db.Tx) error {
			tx.QueueRows(ctx, into, "", []string{"e"}, int64(9), 1.5, false, "other")
			return nil
		})
		rows, err := d.Query(ctx, `SELECT id, n, x, b, same FROM kept ORDER BY id`)
		all, err := db.Collect(rows, err, func(r db.Row) (string, error) {
			var id, same string
			var n int64
			var x float64
			var b bool
			err := r.Scan(&id, &n, &x, &b, &same)
			return fmt.Sprint(id, " ", n, " ", x, " ", b, " ", same), err
		})
		want := "[a 1 0 false same b 2 0.5 true same c 30 1 false same d 4 1 false same e 9 1.5 false other]"
		if err != nil || fmt.Sprint(all) != want {
			t.Errorf("%v, %v, want %s", all, err, want)
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			_, err := tx.InsertRows(ctx, `kept (id, n)`, "", []string{"f", "g"}, []int64{1})
			return err
		})
		if err == nil {
			t.Error("lists of different lengths are rows")
		}
	})
}
