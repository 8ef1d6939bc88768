package webhooks

import "testing"

// Once a team has reached its limit on waiting jobs, an endpoint with exactly an equal share of the limit is full.
func TestOverfullByShares(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		teamMax, full int
	}{{101, 0}, {100, 5}, {99, 5}} {
		waiting := map[string]int{"a": 20, "b": 20, "c": 20, "d": 20, "e": 20}
		if got := overfull(waiting, nil, 1000, c.teamMax); len(got) != c.full {
			t.Errorf("of %d that may wait: %v", c.teamMax, got)
		}
	}
}
