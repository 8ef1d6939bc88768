package grants

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestLine(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		of         refreshState
		generation int64
		want       bool
		then       refreshState
	}{
		"the first":  {refreshState{newest: 1}, 1, true, refreshState{2, 1, now}},
		"the newest": {refreshState{7, 6, now.Add(-time.Hour)}, 7, true, refreshState{8, 7, now}},
		"the one before, at once": {refreshState{7, 6, now.Add(-time.Second)}, 6, true, refreshState{8, 6,
			now.Add(-time.Second)}},
		"the one before, in time": {refreshState{7, 6, now.Add(time.Nanosecond - retryTime)}, 6, true, refreshState{8, 6,
			now.Add(time.Nanosecond - retryTime)}},
		"the one before, too late":                     {refreshState{7, 6, now.Add(-retryTime)}, 6, false, refreshState{}},
		"the one before, by a clock that was set back": {refreshState{7, 6, now.Add(time.Hour)}, 6, false, refreshState{}},
		"the one before, by a clock that is a little behind": {refreshState{7, 6, now.Add(time.Second)}, 6, true,
			refreshState{8, 6, now.Add(time.Second)}},
		"one that was replaced":     {refreshState{8, 6, now}, 7, false, refreshState{}},
		"an older one":              {refreshState{7, 6, now}, 5, false, refreshState{}},
		"one that there is not yet": {refreshState{7, 6, now}, 8, false, refreshState{}},
		"none":                      {refreshState{newest: 1}, 0, false, refreshState{}},
	} {
		l := c.of
		if c.then == (refreshState{}) {
			c.then = c.of
		}
		if got := l.use(c.generation, now); got != c.want || l != c.then {
			t.Errorf("%s: %v %+v", name, got, l)
		}
	}
}

// Whatever the order in which a client and a thief use their tokens, a lost response can be replaced once. If two
// parties hold refresh tokens for one grant, using any token but the newest revokes the grant.
func TestRefreshStateHasOneHolder(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		l, now := refreshState{newest: 1}, time.Now()
		issued := []int64{1}
		used := map[int64]bool{}
		for range rapid.IntRange(1, 20).Draw(t, "uses") {
			now = now.Add(time.Duration(rapid.IntRange(0, 15).Draw(t, "seconds")) * time.Second)
			g := rapid.SampledFrom(issued).Draw(t, "token")
			before := l
			if !l.use(g, now) {
				if g == before.newest {
					t.Fatalf("the newest token %d is refused", g)
				}
				return
			}
			if l.newest != before.newest+1 {
				t.Fatalf("after %+v came %+v", before, l)
			}
			if used[g] && now.Sub(before.rotatedAt) >= retryTime {
				t.Fatalf("token %d is accepted once more after %v", g, now.Sub(before.rotatedAt))
			}
			for later := range used {
				if later > g {
					t.Fatalf("token %d is accepted after %d was", g, later)
				}
			}
			used[g] = true
			issued = append(issued, l.newest)
		}
	})
}
