package delivery

import (
	"testing"
	"time"
)

// The default schedule spreads the tries over nearly two days, and retries after errors on our side continue for
// longer. No wait in a schedule is shorter than the previous one.
func TestSchedules(t *testing.T) {
	for _, c := range []struct {
		name            string
		all             []time.Duration
		first, from, to time.Duration
	}{
		{"tries", defaultSchedule, time.Minute, 44 * time.Hour, 48 * time.Hour},
		{"failures of ours", errorSchedule(), 5 * time.Second, 48 * time.Hour, 52 * time.Hour},
	} {
		var total time.Duration
		for i, d := range c.all {
			if total += d; i > 0 && d < c.all[i-1] {
				t.Errorf("%s: wait %d is %v, shorter than the one before", c.name, i, d)
			}
		}
		if c.all[0] != c.first || total < c.from || total > c.to {
			t.Errorf("%s: the first wait is %v, all are %v", c.name, c.all[0], total)
		}
	}
}
