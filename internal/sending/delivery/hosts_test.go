package delivery

import (
	"testing"
	"time"
)

func TestHostsAreLeftAloneForLonger(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	try := func(what arrival) {
		t.Helper()
		may, news, f := h.claim("a", now)
		if !may {
			t.Fatalf("nobody may dial: %v, %+v", news, f)
		}
		h.arrived("a", what, answer{unknown: true}, now)
	}
	first := now
	for _, wait := range []time.Duration{silentFor, 2 * silentFor, 4 * silentFor, 8 * silentFor, 16 * silentFor, silentMax,
		silentMax} {
		try(silent)
		if may, news, f := h.claim("a", now.Add(wait-1)); may || news != nil || !f.why.unknown {
			t.Errorf("dialled within %v", wait)
		}
		if alone := now.Add(wait).Sub(first); alone > 2*now.Sub(first)+silentFor {
			t.Errorf("left alone until %v after the first failure", alone)
		}
		now = now.Add(wait)
	}
	if !h.failed("a", now.Add(time.Minute)) {
		t.Error("a failure is forgotten at once")
	}
	now = now.Add(deadFor + time.Second)
	if h.failed("a", now) {
		t.Error("a failure is never forgotten")
	}
	try(silent)
	if _, ok := h.silence("a", "team", now.Add(silentFor)); ok {
		t.Error("the waits do not begin anew")
	}
	now = now.Add(silentFor)
	try(unheard) // says nothing about the address
	if !h.failed("a", now) {
		t.Error("a failure is forgotten for nothing")
	}
	try(answered)
	if h.failed("a", now) {
		t.Error("a failure outlives a success")
	}
}

func TestHostsAreProbedOnce(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	claims := func(times int) (may int, news <-chan struct{}, f failure) {
		for range times {
			ok, wait, why := h.claim("a", now)
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
	h.arrived("a", answered, answer{}, now)
	<-news
	if may, news, _ = claims(100); may != dialsMax || news == nil {
		t.Errorf("%d dial an address that answered", may)
	}
	for range dialsMax {
		h.arrived("a", silent, answer{unknown: true}, now)
	}
	<-news
	if may, news, f := claims(10); may != 0 || news != nil || f.times != 1 {
		t.Errorf("%d dial an address that has just failed; it failed %d times", may, f.times)
	}
	now = now.Add(silentFor)
	if may, news, f := claims(10); may != 1 || news != nil || !f.why.unknown {
		t.Errorf("%d dial an address that failed, and the others wait or are not told why", may)
	}
	h.arrived("a", answered, answer{}, now)
	now = now.Add(goodFor)
	if may, _, _ := claims(10); may != 1 {
		t.Errorf("%d dial an address of which nothing was heard for long", may)
	}
}

func TestHostsThatStallForOneTeam(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.stalled("a", "one", answer{unknown: true}, now)
	if f, ok := h.silence("a", "one", now); !ok || !f.why.unknown {
		t.Error("a stall is forgotten")
	}
	for _, other := range [][2]string{{"a", "two"}, {"b", "one"}} {
		if _, ok := h.silence(other[0], other[1], now); ok {
			t.Errorf("a stall of one team's mail at one address is held against %v", other)
		}
	}
	h.moved("a", "two", now)
	if _, ok := h.silence("a", "one", now); !ok {
		t.Error("another team's success counts")
	}
	h.moved("a", "one", now)
	if _, ok := h.silence("a", "one", now); ok {
		t.Error("a stall outlives a success")
	}
}

func TestHostsAreBounded(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.rememberPlain("a", now)
	if !h.plainOnly("a", now) || h.plainOnly("a", now.Add(plainFor)) || h.plainOnly("b", now) {
		t.Error("broken TLS is remembered wrongly")
	}
	h.claim("dialling", now)
	for i := range hostsKept + 5 {
		h.claim(address(i), now)
		h.arrived(address(i), silent, answer{}, now)
		h.stalled(address(i), "team", answer{}, now)
		h.rememberPlain(address(i), now)
	}
	if len(h.known) > hostsKept || len(h.lines) > hostsKept || len(h.plain) > hostsKept {
		t.Error("memory is unbounded")
	}
	if h.known["dialling"] == nil {
		t.Error("an address was forgotten while it is dialled")
	}
}
