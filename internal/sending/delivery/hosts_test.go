package delivery

import (
	"testing"
	"time"
)

func TestBackoffGrows(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	try := func(what dialResult) {
		t.Helper()
		may, news, f := h.claimDial("a", now)
		if !may {
			t.Fatalf("nobody may dial: %v, %+v", news, f)
		}
		h.endDial("a", what, answer{unknown: true}, now)
	}
	first := now
	for _, wait := range []time.Duration{backoffFirst, 2 * backoffFirst, 4 * backoffFirst, 8 * backoffFirst,
		16 * backoffFirst, backoffMax,
		backoffMax} {
		try(noGreeting)
		if may, news, f := h.claimDial("a", now.Add(wait-1)); may || news != nil || !f.why.unknown {
			t.Errorf("dialled within %v", wait)
		}
		if alone := now.Add(wait).Sub(first); alone > 2*now.Sub(first)+backoffFirst {
			t.Errorf("left alone until %v after the first failure", alone)
		}
		now = now.Add(wait)
	}
	if !h.failed("a", now.Add(time.Minute)) {
		t.Error("a failure is forgotten at once")
	}
	now = now.Add(demotedFor + time.Second)
	if h.failed("a", now) {
		t.Error("a failure is never forgotten")
	}
	try(noGreeting)
	if _, ok := h.backoff("a", "team", now.Add(backoffFirst)); ok {
		t.Error("the waits do not begin anew")
	}
	now = now.Add(backoffFirst)
	try(inconclusive) // this result is unrelated to the address
	if !h.failed("a", now) {
		t.Error("a failure is forgotten for nothing")
	}
	try(greeted)
	if h.failed("a", now) {
		t.Error("a failure outlives a success")
	}
}

func TestHostsAreProbedOnce(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	claims := func(times int) (may int, news <-chan struct{}, f failure) {
		for range times {
			ok, wait, why := h.claimDial("a", now)
			switch {
			case ok:
				may++
			case wait != nil:
				news = wait
			default:
				f = why
			}
		}
		return may, news, f
	}
	may, news, _ := claims(100)
	if may != 1 || news == nil {
		t.Fatalf("%d dial an address that nobody knows", may)
	}
	h.endDial("a", greeted, answer{}, now)
	<-news
	if may, news, _ = claims(100); may != dialsMax || news == nil {
		t.Errorf("%d dial an address that answered", may)
	}
	for range dialsMax {
		h.endDial("a", noGreeting, answer{unknown: true}, now)
	}
	<-news
	if may, news, f := claims(10); may != 0 || news != nil || f.times != 1 {
		t.Errorf("%d dial an address that has just failed; it failed %d times", may, f.times)
	}
	now = now.Add(backoffFirst)
	if may, news, f := claims(10); may != 1 || news != nil || !f.why.unknown {
		t.Errorf("%d dial an address that failed, and the others wait or are not told why", may)
	}
	h.endDial("a", greeted, answer{}, now)
	now = now.Add(reachableFor)
	if may, _, _ := claims(10); may != 1 {
		t.Errorf("%d dial an address of which nothing was heard for long", may)
	}
}

func TestHostsThatStallForOneTeam(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.recordStall("a", "one", answer{unknown: true}, now)
	if f, ok := h.backoff("a", "one", now); !ok || !f.why.unknown {
		t.Error("a stall is forgotten")
	}
	for _, other := range [][2]string{{"a", "two"}, {"b", "one"}} {
		if _, ok := h.backoff(other[0], other[1], now); ok {
			t.Errorf("a stall of one team's mail at one address is held against %v", other)
		}
	}
	h.recordAnswer("a", "two", now)
	if _, ok := h.backoff("a", "one", now); !ok {
		t.Error("another team's success counts")
	}
	h.recordAnswer("a", "one", now)
	if _, ok := h.backoff("a", "one", now); ok {
		t.Error("a stall outlives a success")
	}
}

func TestHostsAreBounded(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.rememberPlain("a", now)
	if !h.plainOnly("a", now) || h.plainOnly("a", now.Add(plaintextFor)) || h.plainOnly("b", now) {
		t.Error("broken TLS is remembered wrongly")
	}
	h.claimDial("dialling", now)
	for i := range hostsMax + 5 {
		h.claimDial(address(i), now)
		h.endDial(address(i), noGreeting, answer{}, now)
		h.recordStall(address(i), "team", answer{}, now)
		h.rememberPlain(address(i), now)
	}
	if len(h.entries) > hostsMax || len(h.conversations) > hostsMax || len(h.plain) > hostsMax {
		t.Error("memory is unbounded")
	}
	if h.entries["dialling"] == nil {
		t.Error("an address was forgotten while it is dialled")
	}
}
