package search

import (
	"testing"
	"time"
)

func TestNextRows(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		rows       int
		took, rest time.Duration
		want       int
	}{
		{100, 0, 40 * ms, 200}, {100, ms, 40 * ms, 200}, {400, ms, 40 * ms, 500}, {400, 20 * ms, 15 * ms, 300},
		{400, 300 * ms, ms, 100}, {100, ms, -ms, 100},
	} {
		if got := nextRows(c.rows, c.took, c.rest); got != c.want {
			t.Errorf("nextRows(%d, %s, %s) = %d, want %d", c.rows, c.took, c.rest, got, c.want)
		}
	}
}
