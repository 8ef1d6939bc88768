package db_test

import (
	"context"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A number without a name is an error that names the column, and so is a name without a number.
func TestNames(t *testing.T) {
	t.Parallel()
	type color string
	colors := db.NewNames("things.color", map[color]int16{"red": 1, "green": 2})
	for name, number := range map[color]int16{"red": 1, "green": 2} {
		if got, err := colors.Name(number); got != name || err != nil || colors.Number(name) != number {
			t.Errorf("%s is %d, and %d is %s, %v", name, colors.Number(name), number, got, err)
		}
	}
	for _, number := range []int16{0, 3, -1} {
		if name, err := colors.Name(number); err == nil || !strings.Contains(err.Error(), "things.color") {
			t.Errorf("%d is %q, %v", number, name, err)
		}
	}
	if number, err := colors.Find("blue"); err == nil || !strings.Contains(err.Error(), "things.color") {
		t.Errorf("blue is %d, %v", number, err)
	}
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		newThings(t, d)
		update(t, d, func(tx *db.Tx) { tx.QueueRow(t.Context(), insertThing, thing(1), 5, "", nil) })
		for name, write := range map[string]func(context.Context, func(*db.Tx) error) error{"Update": d.Update,
			"UpdateTogether": func(ctx context.Context, fn func(*db.Tx) error) error {
				return d.UpdateTogether(ctx, db.Recording, fn)
			}} {
			err := write(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE things SET n = 6`)
				tx.Queue(t.Context(), `UPDATE things SET n = $1`, colors.Number("blue"))
				return nil
			})
			if err == nil || !strings.Contains(err.Error(), `"blue" has no number for the column things.color`) {
				t.Errorf("%s: %v", name, err)
			}
		}
		var n int
		if err := d.QueryRow(t.Context(), `SELECT n FROM things`).Scan(&n); err != nil || n != 5 {
			t.Errorf("the row has %d, %v", n, err)
		}
	})
	defer func() {
		if recover() == nil {
			t.Error("one number stands for two names")
		}
	}()
	db.NewNames("things.color", map[color]int16{"red": 1, "green": 1})
}
