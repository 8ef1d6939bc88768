package db_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// adding returns a context whose addition inserts a row with the given name.
func adding(ctx context.Context, name string) context.Context {
	return db.WithAddition(ctx, func(ctx context.Context, tx *db.Tx) { put(ctx, tx, name) })
}

// put inserts a row with the given id, which is also its name.
func put(ctx context.Context, tx *db.Tx, id string) {
	tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) SELECT CAST($1 AS TEXT), CAST($1 AS TEXT), COALESCE(MAX(n),
		1000) + 1, TRUE, ''
		FROM things`, id)
}

// An addition is stored only with the first change that is committed.
func TestAddition(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		broken := errors.New("broken")
		for name, update := range committing(d) {
			ctx := adding(t.Context(), name)
			has := func(want bool, when string) {
				t.Helper()
				var n int
				err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM things WHERE id = $1`, name).Scan(&n)
				if err != nil || (n == 1) != want {
					t.Errorf("%s, %s: %d rows, %v; want one: %v", name, when, n, err, want)
				}
			}
			if err := update(ctx, func(tx *db.Tx) error {
				put(ctx, tx, "undone")
				return broken
			}); !errors.Is(err, broken) {
				t.Error(err)
			}
			has(false, "after a failure")
			for what, fn := range map[string]func(tx *db.Tx) error{
				"a read": func(tx *db.Tx) error {
					return tx.QueryRow(ctx,
						`SELECT COUNT(*) FROM things`).Scan(new(int))
				},
				"a lock": func(tx *db.Tx) error { return tx.Serialize(ctx, "name") },
				"a change of nothing": func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `UPDATE things SET n = 5000 WHERE id = 'missing'`)
					return err
				},
			} {
				if err := update(ctx, fn); err != nil {
					t.Error(err)
				}
				has(false, "after "+what)
			}
			if err := d.UpdateApart(ctx, func(tx *db.Tx) error {
				put(ctx, tx,
					name+" apart")
				return nil
			}); err != nil {
				t.Error(err)
			}
			has(false, "after an update apart")
			without := db.WithoutAddition(ctx)
			if err := update(without, func(tx *db.Tx) error {
				put(without, tx,
					name+" without")
				return nil
			}); err != nil {
				t.Error(err)
			}
			has(false, "after an update without")
			for i := range 2 { // a second run of the addition would violate the primary key
				err := update(ctx, func(tx *db.Tx) error { put(ctx, tx, fmt.Sprint(name, i)); return nil })
				if err != nil {
					t.Error(err)
				}
				has(true, "after a change")
			}
			done := adding(t.Context(), name+" exec")
			if err := update(done, func(tx *db.Tx) error {
				n, err := tx.Exec(done, `DELETE FROM things WHERE id = $1`, name)
				if n != 1 {
					t.Errorf("%d rows deleted", n)
				}
				return err
			}); err != nil {
				t.Error(err)
			}
			name += " exec"
			has(true, "after a statement that changed a row")
		}
	})
}

// If an addition fails, the change is rolled back.
func TestAdditionFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := adding(t.Context(), "change")
		err := d.Update(ctx, func(tx *db.Tx) error { put(ctx, tx, "change"); return nil })
		if n := count(t, d.Reader); err == nil || n != 0 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

// If a transaction runs again, its addition also runs again but is stored only once.
func TestAdditionRunsAgain(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	makeTable(t, d)
	for name, update := range committing(d) {
		proxy.DropCommits(1)
		ran, before := 0, count(t, d.Reader)
		if err := update(adding(t.Context(), name+" added"), prove(t.Context(), name, &ran)); err != nil || ran != 2 {
			t.Errorf("%s: ran %d times, %v", name, ran, err)
		}
		if n := count(t, d.Reader); n != before+2 {
			t.Errorf("%s: %d rows more, want 2", name, n-before)
		}
	}
}

// A further addition runs after the earlier one, in the same transaction, and also without an earlier one.
func TestFurtherAddition(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		for name, update := range committing(d) {
			for want, ctx := range map[int]context.Context{3: t.Context(), 4: adding(t.Context(), name+" first")} {
				before := count(t, d.Reader)
				ctx = db.WithFurtherAddition(ctx, func(ctx context.Context, tx *db.Tx) {
					put(ctx, tx, fmt.Sprint(name, " further ", before))
				})
				for i := range 2 { // only the first update runs the additions
					if err := update(ctx, func(tx *db.Tx) error {
						put(ctx, tx, fmt.Sprint(name, " change ", before, i))
						return nil
					}); err != nil {
						t.Error(err)
					}
				}
				if n := count(t, d.Reader) - before; n != want {
					t.Errorf("%s: %d rows more, want %d", name, n, want)
				}
			}
		}
	})
}

// If several updates share a transaction, each update stores only its own addition.
func TestAdditionsTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				ctx := db.WithAddition(t.Context(), func(ctx context.Context, tx *db.Tx) {
					tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, TRUE, '')`,
						fmt.Sprintf("added %d", i), i)
				})
				err := d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
					if i%3 == 0 {
						return nil // changes nothing
					}
					return tx.QueryRow(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, FALSE, '')
						RETURNING 1`, fmt.Sprint(i), i).Scan(new(int))
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := count(t, d.Reader); n != 80 {
			t.Errorf("%d rows", n)
		}
	})
}

// Commits notes only changes that were committed, of an update that its caller asked for.
func TestCommits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		broken := errors.New("broken")
		for name, update := range committing(d) {
			ctx, commits := db.WithCommits(t.Context())
			is := func(want bool, when string) {
				t.Helper()
				if commits.Any() != want {
					t.Errorf("%s: after %s, a commit is noted: %v", name, when, commits.Any())
				}
			}
			if err := update(ctx, func(tx *db.Tx) error { put(ctx, tx, "undone"); return broken }); !errors.Is(err, broken) {
				t.Error(err)
			}
			is(false, "a failure")
			if err := update(ctx, func(tx *db.Tx) error { return tx.Serialize(ctx, "name") }); err != nil {
				t.Error(err)
			}
			is(false, "an update without a change")
			without := db.WithoutAddition(ctx)
			if err := update(without, func(tx *db.Tx) error { put(ctx, tx, "aside "+name); return nil }); err != nil {
				t.Error(err)
			}
			is(false, "a change that the caller did not ask for")
			inner := adding(ctx, "added "+name)
			if err := update(inner, func(tx *db.Tx) error { put(ctx, tx, "stored "+name); return nil }); err != nil {
				t.Error(err)
			}
			is(true, "a change")
		}
	})
}
