package db

import (
	"testing"
	"time"
)

// TestClock stores readings of a server whose clock is one hour ahead of this machine's clock.
func TestClock(t *testing.T) {
	t.Parallel()
	var c clock
	start := time.Now()
	ahead := func(offset time.Duration) {
		t.Helper()
		got := time.Until(c.now())
		if off := got - offset; off < -time.Second || off > time.Second {
			t.Errorf("the clock is %v ahead, want %v", got, offset)
		}
	}
	read := func(after, took, server time.Duration) {
		c.heard(start.Add(after), start.Add(after+took), start.Add(after+took/2+server))
	}
	ahead(0)
	read(0, 10*time.Second, time.Hour+4*time.Second)
	ahead(time.Hour + 4*time.Second)
	read(11*time.Second, 2*time.Millisecond, time.Hour)
	ahead(time.Hour)
	read(20*time.Second, 10*time.Second, 2*time.Hour) // dropped: it took 10 s, so it may be wrong by 5 s
	ahead(time.Hour)
	read(31*time.Second, 4*time.Millisecond, 2*time.Hour) // accepted: the server's clock was changed
	ahead(2 * time.Hour)
	read(100*time.Second, 10*time.Second, 3*time.Hour) // accepted: the stored reading is over a minute old
	ahead(3 * time.Hour)
}
