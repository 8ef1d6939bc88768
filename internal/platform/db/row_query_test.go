package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgtype"

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

// A read whose turn has not come ends with its context, although the reads before it hang. A panic in Scan reaches the
// caller, and later reads go on.
func TestReadRowEnds(t *testing.T) {
	d := dbtest.Postgres(t)
	makeTable(t, d)
	if err := insert(t.Context(), d, "there", "there", 1); err != nil {
		t.Fatal(err)
	}
	read := func(ctx context.Context) error {
		var n int
		var id string
		return d.ReadRow(ctx, thingByID, "there").Scan(&n, &id)
	}
	var wg sync.WaitGroup
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `LOCK TABLE things`); err != nil {
			return err
		}
		for n := range 2 { // as many statements may run at a time
			wg.Go(func() {
				if err := read(t.Context()); err != nil {
					t.Error(err)
				}
			})
			for locked := 0; locked <= n; {
				if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_locks WHERE NOT granted
					AND relation = CAST('things' AS REGCLASS)`).Scan(&locked); err != nil {
					return err
				}
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(cancel)
		if err := read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("a read whose context has ended: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a destination that panics did not panic")
			}
		}()
		d.ReadRow(t.Context(), thingByID, "there").Scan(panics{}, panics{})
	}()
	if err := read(t.Context()); err != nil {
		t.Error(err)
	}
}

// panics is a destination that panics.
type panics struct{}

func (panics) ScanInt64(pgtype.Int8) error { panic("scan") }

// While a shared transaction hangs, updates that begin right after another one has ended do not wait for it.
func TestUpdateBesideAHangingOne(t *testing.T) {
	d := dbtest.Postgres(t)
	began, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := d.UpdateTogether(t.Context(), db.Accepting, func(*db.Tx) error {
			close(began)
			<-free
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	<-began
	for range 5 {
		if err := d.UpdateTogether(t.Context(), db.Accepting, func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT 1`)
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	close(free)
	wg.Wait()
}
