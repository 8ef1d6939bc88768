package db_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

var thingByID = db.NewRowQuery("", `SELECT n, id FROM things WHERE id = $1`, "TEXT")

// ReadRow reads what was committed before it, while other goroutines read and write.
func TestReadRow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 20 {
					name := fmt.Sprint("name ", w, " ", i)
					err := insert(t.Context(), d, name, name, w*100+i)
					var n int
					var id string
					if err == nil {
						err = d.ReadRow(t.Context(), thingByID, name).Scan(&n, &id)
					}
					if err != nil || n != w*100+i || id != name {
						t.Errorf("%s is %d with the id %s, %v", name, n, id, err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// Many reads begin at the same time. Each gets its own row, or its own error.
func TestReadRowsTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		kind := map[string]string{"sqlite": "BLOB", "postgres": "UUID"}[d.Engine()]
		names := make([]string, 200)
		update(t, d, func(tx *db.Tx) {
			tx.Queue(t.Context(), `CREATE TABLE pairs (id `+kind+`, name TEXT, n INTEGER)`)
		})
		update(t, d, func(tx *db.Tx) {
			for i := range names {
				names[i] = dbtest.ID(fmt.Sprint(i))
				if i%10 != 0 {
					tx.Queue(t.Context(), `INSERT INTO pairs (id, name, n) VALUES ($1, $2, $3)`, db.ID(names[i]), "x", i)
				}
			}
		})
		q := db.NewRowQuery("", `SELECT p.n, p.name, NOT EXISTS (SELECT 1 FROM pairs o WHERE o.name <> $2) FROM pairs p
			WHERE p.id = $1 AND p.name = $2`, "UUID TEXT")
		var wg sync.WaitGroup
		for i, id := range names {
			wg.Go(func() {
				var n int
				var name string
				var all bool
				arg := db.ID(id)
				if i == 55 {
					arg = "no id"
				}
				err := d.ReadRow(t.Context(), q, arg, "x").Scan(&n, &name, &all)
				switch {
				case i == 55:
					if err == nil || errors.Is(err, db.ErrNoRows) || errors.Is(err, db.ErrUnavailable) {
						t.Errorf("an argument that is not an id: %v", err)
					}
				case i%10 == 0:
					if !errors.Is(err, db.ErrNoRows) {
						t.Errorf("a missing row: %d, %v", n, err)
					}
				case err != nil || n != i || name != "x" || !all:
					t.Errorf("row %d: %d, %s, %t, %v", i, n, name, all, err)
				}
			})
		}
		wg.Wait()
	})
}
