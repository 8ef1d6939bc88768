package metrics

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Each moment of a span is counted once: with the counters of its slot if they are complete, and otherwise from the
// events.
func TestSplit(t *testing.T) {
	us := slot.Microseconds()
	third := us / 3
	for from := int64(0); from <= 4*us; from += third {
		for to := from; to <= 5*us; to += third {
			for until := int64(0); until <= 5*us; until += third {
				for _, dirty := range [][]int64{nil, {0}, {1}, {1, 2}, {0, 3}, {4}} {
					low, high, live := split(span{from, to}, until, 0, dirty)
					for at := int64(0); at < 6*us; at += third / 2 {
						n, s := 0, at/us
						clean := !slices.Contains(dirty, s)
						if s >= low && s < high && clean && at < until {
							n++
						}
						for _, l := range live {
							if at >= l.from && at < l.to {
								n++
							}
						}
						want := 0
						if at >= from && at < to {
							want = 1
						}
						if n != want {
							t.Fatalf("from %d to %d until %d dirty %v: %d is counted %d times: slots %d to %d, live %v", from, to, until,
								dirty, at, n, low,
								high, live)
						}
					}
				}
			}
		}
	}
	_, _, live := split(span{us / 2, 5 * us}, 4*us, 0, []int64{0, 1})
	if diff := cmp.Diff([]span{{us / 2, 2 * us}, {4 * us, 5 * us}}, live, cmp.AllowUnexported(span{})); diff != "" {
		t.Error(diff)
	}
}

// Final slots are counted with their counters, at their start, and the others as if the span began after them.
func TestSplitFinal(t *testing.T) {
	us := slot.Microseconds()
	type parts struct {
		Low, High int64
		Live      []span
	}
	for _, c := range []struct {
		all  span
		want parts
	}{
		{span{0, 2 * us}, parts{0, 2, nil}},
		{span{us / 2, 2*us + us/2}, parts{1, 3, nil}},
		{span{us / 2, us}, parts{1, 1, nil}},
		{span{us / 2, 5*us + us/2}, parts{1, 5, []span{{4 * us, 5*us + us/2}}}},
		{span{2*us + us/2, 4 * us}, parts{3, 4, nil}},
		{span{4 * us, 5 * us}, parts{4, 5, []span{{4 * us, 5 * us}}}},
	} {
		low, high, live := split(c.all, 6*us, 3, []int64{4})
		if diff := cmp.Diff(c.want, parts{low, high, live}, cmp.AllowUnexported(span{})); diff != "" {
			t.Errorf("%v: %s", c.all, diff)
		}
	}
}
