package nameserver

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

// clock is a clock that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newTestLimiter(rate int) (*limiter, *clock) {
	c := &clock{time.Unix(1_800_000_000, 0)}
	return newLimiter(rate, c.now), c
}

// count sends n responses and counts the verdicts.
func count(l *limiter, n int, client string, c class) (counts [3]int) {
	for range n {
		counts[l.allow(netip.MustParseAddr(client), c)]++
	}
	return counts
}

func TestLimiterSlipsEverySecondResponse(t *testing.T) {
	t.Parallel()
	l, clock := newTestLimiter(10)
	answer := class{kind: kindAnswer, name: "a.example", typ: 16}
	if got := count(l, 120, "192.0.2.1", answer); got != [3]int{20, 50, 50} {
		t.Errorf("passed, slipped, dropped: %v", got)
	}
	clock.at = clock.at.Add(time.Second)
	if got := count(l, 30, "192.0.2.1", answer); got[pass] != 10 {
		t.Errorf("after a second: %v", got)
	}
	clock.at = clock.at.Add(1000 * time.Hour)
	if got := count(l, 120, "192.0.2.1", answer); got[pass] != 20 {
		t.Errorf("after a long time: %v", got)
	}
	// Small steps add up.
	for range 100 {
		clock.at = clock.at.Add(10 * time.Millisecond)
		l.allow(netip.MustParseAddr("192.0.2.1"), class{kind: kindError})
	}
	if got := count(l, 30, "192.0.2.1", answer); got[pass] != 10 {
		t.Errorf("after a second in small steps: %v", got)
	}
}

func TestLimiterCountsNetworksAndClassesApart(t *testing.T) {
	t.Parallel()
	l, _ := newTestLimiter(10)
	answer := class{kind: kindAnswer, name: "a.example", typ: 16}
	count(l, 20, "192.0.2.1", answer)
	for _, c := range []struct {
		client string
		class  class
		passes bool
	}{
		{"192.0.2.255", answer, false}, // the same /24
		{"::ffff:192.0.2.7", answer, false},
		{"192.0.3.1", answer, true},
		{"192.0.2.1", class{kind: kindAnswer, name: "b.example", typ: 16}, true},
		{"192.0.2.1", class{kind: kindAnswer, name: "a.example", typ: 15}, true},
		{"192.0.2.1", class{kind: kindNoName, name: "a.example"}, true},
		{"192.0.2.1", class{kind: kindNoData, name: "a.example"}, true},
		{"192.0.2.1", class{kind: kindError}, true},
	} {
		if got := l.allow(netip.MustParseAddr(c.client), c.class) == pass; got != c.passes {
			t.Errorf("%s %+v: passes %v", c.client, c.class, got)
		}
	}
	count(l, 20, "2001:db8::1", answer)
	if l.allow(netip.MustParseAddr("2001:db8:0:ff::1"), answer) == pass {
		t.Error("an address of the same /56 passes")
	}
	if l.allow(netip.MustParseAddr("2001:db8:0:100::1"), answer) != pass {
		t.Error("an address of another /56 is limited")
	}
}

// A client that asks for ever new names is limited too.
func TestLimiterCountsAllClassesTogether(t *testing.T) {
	t.Parallel()
	l, _ := newTestLimiter(1)
	passed := 0
	for i := range 1000 {
		if l.allow(netip.MustParseAddr("192.0.2.1"), class{kind: kindAnswer, name: fmt.Sprint(i)}) == pass {
			passed++
		}
	}
	if passed != allFactor*burst {
		t.Errorf("%d responses passed, want %d", passed, allFactor*burst)
	}
}

// A flood from forged addresses of all networks does not grow the limiter, and does not reset the counter of a client
// that keeps asking.
func TestLimiterUnderFlood(t *testing.T) {
	t.Parallel()
	l, clock := newTestLimiter(10)
	answer := class{kind: kindAnswer, name: "a.example", typ: 16}
	count(l, 100, "192.0.2.1", answer)
	passed := 0
	for i := range 500_000 {
		clock.at = clock.at.Add(time.Microsecond)
		l.allow(netip.AddrFrom4([4]byte{byte(10 + i>>16), byte(i >> 8), byte(i), 1}), answer)
		if i%10 == 0 && l.allow(netip.MustParseAddr("192.0.2.1"), answer) == pass {
			passed++
		}
	}
	if passed > 100 { // half a second has passed; a counter that was replaced starts with a full burst again
		t.Errorf("%d of 50000 responses passed", passed)
	}
}

func TestNoLimit(t *testing.T) {
	t.Parallel()
	l, _ := newTestLimiter(0)
	if got := count(l, 10_000, "192.0.2.1", class{}); got[pass] != 10_000 {
		t.Errorf("%v", got)
	}
	l, _ = newTestLimiter(1_000_000) // no overflow
	if got := count(l, 10_000, "192.0.2.1", class{}); got[pass] != 10_000 {
		t.Errorf("%v", got)
	}
}
