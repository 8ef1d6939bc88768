package id

import (
	"slices"
	"sync"
	"testing"
	"time"
)

// TestAt: ids from At contain the time in milliseconds and sort by time.
func TestAt(t *testing.T) {
	at := time.UnixMilli(max(time.Now().UnixMilli(), last.Load()>>12) + 1) // later than the times of all existing ids
	var all []string
	for _, after := range []time.Duration{0, time.Microsecond, 999 * time.Microsecond, time.Millisecond, time.Hour} {
		one := At(at.Add(after))
		got, ok := Time(one)
		if want := at.Add(after).UTC().Truncate(time.Millisecond); !ok || !got.Equal(want) || !Valid(one) {
			t.Errorf("%s is of %v, want %v", one, got, want)
		}
		all = append(all, one)
	}
	if !slices.IsSorted(all) {
		t.Errorf("not in order: %v", all)
	}
}

// After a clock that was far ahead is set back, At creates ids with the current time.
func TestAtFollowsAClockThatIsSetBack(t *testing.T) {
	now := time.Now().Add(24 * time.Hour)
	ahead := At(now.Add(time.Hour))
	if next, least := At(now), First(now.Add(time.Second)); next >= ahead || next >= least {
		t.Errorf("%s came after %s", next, ahead)
	}
}

// Ids sort in creation order if the clock stops or goes back a little, and concurrent callers never get the same id.
func TestAtNeverGoesBackALittle(t *testing.T) {
	now := time.Now()
	at := At(now)
	for i := range 10_000 { // more ids than fit into one millisecond
		next := At(now.Add(-time.Duration(i) * time.Millisecond))
		if next <= at {
			t.Fatalf("%s came after %s", next, at)
		}
		at = next
	}
	made := make([][]string, 8)
	var wg sync.WaitGroup
	for i := range made {
		wg.Go(func() {
			for range 1000 {
				made[i] = append(made[i], At(now))
			}
		})
	}
	wg.Wait()
	for _, one := range made {
		if !slices.IsSorted(one) {
			t.Error("one who makes ids has them out of order")
		}
	}
	all := slices.Concat(made...)
	slices.Sort(all)
	if len(slices.Compact(all)) != 8000 {
		t.Error("an id was made twice")
	}
}

// At also returns valid ids for times at or before 1970.
func TestAtOfOddTimes(t *testing.T) {
	for _, at := range []time.Time{{}, time.Unix(0, 0), time.UnixMilli(-1)} {
		if one := At(at); !Valid(one) {
			t.Errorf("%v: %s", at, one)
		}
	}
}

// Expand reverses Compact, and rejects texts that Compact cannot return.
func TestCompact(t *testing.T) {
	x := New()
	if text := Compact(x); len(text) != 32 || Expand(text) != x {
		t.Errorf("%s is %s and then %s", x, text, Expand(text))
	}
	for _, text := range []string{"", x, Compact(x)[1:], Compact(x) + "0", Compact(x)[1:] + "g", Compact(x)[1:] + "A"} {
		if got := Expand(text); got != "" {
			t.Errorf("%q is expanded to %s", text, got)
		}
	}
}
