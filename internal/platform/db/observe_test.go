package db_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// OnUpdate gets the wait and the duration of each transaction, and whether it was committed.
func TestOnUpdate(t *testing.T) {
	for _, url := range []struct{ name, url string }{
		{"sqlite", dbtest.SQLiteFile(t)}, {"postgres", dbtest.PostgresURL(t)},
	} {
		t.Run(url.name, func(t *testing.T) {
			type report struct {
				wait, took time.Duration
				err        error
			}
			seen := make(chan report, 100)
			d, err := db.Open(t.Context(), db.Options{URL: url.url,
				OnUpdate: func(wait, took time.Duration, err error) { seen <- report{wait, took, err} }})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			wrong := errors.New("wrong")
			if err := d.Update(t.Context(), func(*db.Tx) error { return wrong }); !errors.Is(err, wrong) {
				t.Fatal(err)
			}
			if r := <-seen; !errors.Is(r.err, wrong) || r.wait < 0 || r.took < 0 {
				t.Errorf("a failed update: %+v", r)
			}
			const pause = 50 * time.Millisecond
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					if err := d.Update(t.Context(), func(tx *db.Tx) error {
						var one int
						err := tx.QueryRow(t.Context(), `SELECT 1`).Scan(&one)
						<-time.After(pause) // the time that the transaction takes
						return err
					}); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			a, b := <-seen, <-seen
			if a.err != nil || b.err != nil || a.took < pause || b.took < pause {
				t.Errorf("%+v, %+v", a, b)
			}
			if waited := max(a.wait, b.wait); d.Alone() && waited < pause/2 {
				t.Errorf("with one writer, the second update waited for only %s", waited)
			}
		})
	}
}

// A transaction reads a fact that it has set, and the age of the installation is known.
func TestFactInTransaction(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			for _, want := range []string{"one", "two", ""} {
				db.SetFact(t.Context(), tx, "some", want)
				if got, err := db.FactIn(t.Context(), tx.Reader, "some"); err != nil || got != want {
					t.Errorf("in a transaction: %q, %v", got, err)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if at, err := d.Began(t.Context()); err != nil || at.IsZero() || at.After(d.Now().Add(time.Minute)) {
			t.Errorf("the installation began at %s, %v", at, err)
		}
		offset, ok := d.ClockOffset()
		if ok == d.Alone() || offset.Abs() > time.Second {
			t.Errorf("the clock differs by %s, %t", offset, ok)
		}
	})
}
