package lograte

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Limiter
		for round, want := range []int{0, 5, 5} {
			if ok, left := l.Allow(); !ok || left != want {
				t.Errorf("round %d: %v, %d left out; want true, %d", round, ok, left, want)
			}
			for range 5 {
				if ok, _ := l.Allow(); ok {
					t.Errorf("round %d: a second line at once", round)
				}
			}
			time.Sleep(Every)
		}
	})
}
