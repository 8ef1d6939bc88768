package db_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// A number without a name is an error that names the column, and a name without a number is not stored as another one.
func TestNames(t *testing.T) {
	t.Parallel()
	type color string
	colors := db.NewNames("things.color", map[color]int16{"red": 1, "green": 2})
	for name, number := range map[color]int16{"red": 1, "green": 2} {
		if got, err := colors.Name(number); got != name || err != nil || colors.Number(name) != number {
			t.Errorf("%s is %d, and %d is %s, %v", name, colors.Number(name), number, got, err)
		}
	}
	for _, number := range []int16{0, 3, -1, colors.Number("blue")} {
		if name, err := colors.Name(number); err == nil || !strings.Contains(err.Error(), "things.color") {
			t.Errorf("%d is %q, %v", number, name, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("one number stands for two names")
		}
	}()
	db.NewNames("things.color", map[color]int16{"red": 1, "green": 1})
}
