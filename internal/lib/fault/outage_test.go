package fault

import (
	"errors"
	"fmt"
	"testing"
)

type away bool

func (away) Error() string  { return "away" }
func (a away) Outage() bool { return bool(a) }

func TestIsOutage(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want bool
	}{{nil, false}, {errors.New("x"), false}, {away(true), true}, {away(false), false},
		{fmt.Errorf("%w: %w", errors.New("x"), away(true)), true},
		{New(Unavailable, "", "x").Because(away(true)), true}} {
		if got := IsOutage(c.err); got != c.want {
			t.Errorf("%v is an outage: %v", c.err, got)
		}
	}
}
