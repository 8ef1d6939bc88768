package delivery

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// After a failure, an address is not tried until its backoff ends. After the backoff, other addresses are tried first
// for the duration demotedFor.
func TestFailureAtItsEdges(t *testing.T) {
	t.Parallel()
	var f failure
	now := time.Now()
	f.add(answer{}, time.Second, time.Hour, now)
	first := f
	f.add(answer{unknown: true}, time.Second, time.Hour, now.Add(time.Second-1)) // the attempt began before the failure
	if f.times != 1 || !f.until.Equal(first.until) || !f.at.Equal(now) || !f.why.unknown {
		t.Errorf("%+v", f)
	}
	f.add(answer{}, time.Second, time.Hour, now.Add(time.Second))
	if f.times != 2 || f.until.Sub(now) != 3*time.Second || !f.at.Equal(now.Add(time.Second)) {
		t.Errorf("%+v", f)
	}
	if !f.failed(f.until.Add(demotedFor)) || f.failed(f.until.Add(demotedFor+1)) {
		t.Error("it is held against the address for too short or too long")
	}
	for range 100 {
		f.add(answer{}, time.Second, time.Hour, f.until)
	}
	if f.until.Sub(f.at) != time.Hour {
		t.Errorf("after 100 failures it is left alone for %v", f.until.Sub(f.at))
	}
	f.add(answer{}, time.Second, time.Hour, f.until.Add(demotedFor+1))
	if f.times != 1 || f.until.Sub(f.at) != time.Second {
		t.Errorf("after a long time: %+v", f)
	}
}

// An address is not dialed until its backoff ends. After an answer, an address counts as reachable for reachableFor.
func TestHostsAtTheirEdges(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.claimDial("a", now)
	h.endDial("a", noGreeting, answer{}, now)
	h.recordStall("b", "team", answer{}, now)
	until := now.Add(backoffFirst)
	for _, addr := range []string{"a", "b"} {
		if _, ok := h.backoff(addr, "team", until.Add(-1)); !ok {
			t.Errorf("%s is not left alone", addr)
		}
		if _, ok := h.backoff(addr, "team", until); ok {
			t.Errorf("%s is left alone for too long", addr)
		}
	}
	if h.failed("never", now) {
		t.Error("an address that nobody knows has failed")
	}
	if may, _, _ := h.claimDial("a", until); !may {
		t.Error("nobody may dial when the time has come")
	}
	h.endDial("a", greeted, answer{}, until)
	for at, want := range map[time.Time]int{until.Add(reachableFor - 1): dialsMax, until.Add(reachableFor): 1} {
		n := 0
		for ; n < 2*dialsMax; n++ {
			if may, _, _ := h.claimDial("a", at); !may {
				break
			}
		}
		if n != want {
			t.Errorf("%d may dial %v after it answered, want %d", n, at.Sub(until), want)
		}
		for range n {
			h.endDial("a", inconclusive, answer{}, at)
		}
	}
	h.rememberPlain("a", now)
	if !h.plainOnly("a", now.Add(plaintextFor-1)) || h.plainOnly("a", now.Add(plaintextFor)) {
		t.Error("broken TLS is remembered for too short or too long")
	}
}

// When the table is full, half of the unused addresses in backoff are deleted, along with all other unused addresses.
func TestWhatHostsForget(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	for i := range hostsMax {
		addr := address(i)
		h.claimDial(addr, now)
		h.endDial(addr, map[bool]dialResult{true: noGreeting, false: greeted}[i%2 == 0], answer{}, now)
		if i%2 == 0 {
			h.recordStall(addr, "team", answer{}, now)
		} else {
			h.recordAnswer(addr, "team", now)
		}
	}
	if len(h.entries) != hostsMax || len(h.conversations) != hostsMax {
		t.Fatalf("%d and %d are known", len(h.entries), len(h.conversations))
	}
	h.conversations[connKey{address(1), "team"}].talking = 1
	h.entries[address(1)].talking, h.entries[address(3)].dialing, h.entries[address(5)].waiting = 1, 1, []waiter{{}}
	h.begin("new", "team", now)
	for i := range hostsMax {
		if used := i == 1 || i == 3 || i == 5; i%2 == 1 && (h.entries[address(i)] != nil) != used {
			t.Fatalf("address %d, which answers, is known: %v", i, !used)
		}
		if used := i == 1; i%2 == 1 && (h.conversations[connKey{address(i), "team"}] != nil) != used {
			t.Fatalf("the line of address %d, which answers, is known: %v", i, !used)
		}
	}
	for what, n := range map[string]int{"addresses": len(h.entries), "lines": len(h.conversations)} {
		if n < hostsMax/5 || n > hostsMax*3/10 { // about half of the addresses in backoff
			t.Errorf("%d %s are known", n, what)
		}
	}
	for i := range hostsMax {
		h.rememberPlain(address(i), now)
	}
	if len(h.plain) != hostsMax {
		t.Errorf("of %d addresses broken TLS is remembered", len(h.plain))
	}
	if h.rememberPlain("new", now); len(h.plain) != 1 {
		t.Errorf("of %d addresses broken TLS is remembered with one more", len(h.plain))
	}
}

// Each team has a window per address. Even if the limit for all teams is reached, each team may have one conversation.
func TestConversationsWithAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, now := newHosts(2), time.Now()
		h.pool = newPool(10, 10)
		begins := func(team string) (news <-chan struct{}) {
			t.Helper()
			may, news, f := h.begin("a", team, now)
			if may == (news != nil) || f.times != 0 {
				t.Fatalf("%s: %v, %v, %+v", team, may, news, f)
			}
			return news
		}
		use := func(want, held int) {
			t.Helper()
			if gotWant, gotHeld := h.demand("a"); gotWant != want || gotHeld != held {
				t.Errorf("%d are wanted and %d held, want %d and %d", gotWant, gotHeld, want, held)
			}
		}
		if w, held := h.demand("a"); w != 0 || held != 0 {
			t.Errorf("of an address that nobody knows %d are wanted and %d held", w, held)
		}
		if begins("one") != nil {
			t.Fatal("the first may not begin")
		}
		use(1, 1)
		second := begins("one") // the team's window allows one conversation
		if second == nil {
			t.Fatal("a flow has two places at first")
		}
		use(1, 1) // another message from the team waits for the team's window, not for the address
		if begins("two") != nil || begins("three") != nil {
			t.Error("a team that has none does not get its one")
		}
		use(2, 3)
		if begins("three") == nil {
			t.Error("a team gets two beyond the limit")
		}
		if closed(second) {
			t.Error("the second is woken early")
		}
		h.end("a", "one", replied, time.Second, now) // a prompt answer allows a second conversation
		if !closed(second) {
			t.Error("nobody hears that a conversation ended")
		}
		if begins("one") != nil { // another team may have one conversation, although the limit of two is reached
			t.Error("woken for nothing")
		}
		if begins("one") == nil {
			t.Error("there are more than the limit")
		}
		for _, team := range []string{"two", "three"} {
			h.end("a", team, replied, time.Second, now)
		}
		if begins("one") != nil {
			t.Error("a flow with two places has one conversation")
		}
		if busy := h.busy(); len(busy) != 1 || busy[0] != "a" {
			t.Errorf("there are conversations with %q", busy)
		}
		h.end("a", "one", unanswered, time.Second, now)
		h.end("a", "one", unanswered, time.Second, now)
		if busy := h.busy(); len(busy) != 0 {
			t.Errorf("there are conversations with %q after all", busy)
		}
		h.closeExcess("nobody knows it")
	})
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Messages that wait for an address are woken when its conversations stall, and begin returns the reason.
func TestThoseWhoWaitAreAwoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHosts(20)
		h.begin("a", "team", time.Now())
		began := time.Now()
		time.Sleep(time.Second)
		_, news, _ := h.begin("a", "team", time.Now())
		<-news
		if waited := time.Since(began); waited != stallAfter+time.Second {
			t.Errorf("they waited %v", waited)
		}
		may, news, f := h.begin("a", "team", time.Now())
		if may || news != nil || f.times != 1 || !f.at.Equal(began) || f.why.stage != smtpclient.StageConnect {
			t.Errorf("%v, %v, %+v", may, news, f)
		}
		h.end("a", "team", replied, time.Minute, time.Now())
		if may, _, _ := h.begin("a", "team", time.Now()); !may {
			t.Error("nothing is sent after it answered")
		}
		time.Sleep(2 * stallAfter) // no message waits, so no timer is set
	})
}

// This test acquires slots at a destination and checks the shaper's limits at their exact boundary values.
func TestShapeAtItsEdges(t *testing.T) {
	t.Parallel()
	for n, want := range map[int]int{1: 0, 3: 0, 4: 1, 20: 1} {
		if reservedConnections(n) != want {
			t.Errorf("of %d connections %d are kept", n, reservedConnections(n))
		}
	}
	now := time.Now()
	s := newShaper(10, 0)
	if want, held := s.demand("d"); want != 0 || held != 0 {
		t.Errorf("of a destination that nobody knows %d are wanted and %d held", want, held)
	}
	h := s.entry("d")
	for _, c := range []struct{ entered, share, allowed, want int }{{0, 4, 10, 0}, {4, 4, 10, 4}, {5, 4, 10, 8},
		{9, 4, 10, 9},
		{20, 4, 10, 10}, {1, 0, 10, 1}, {3, 4, 2, 2}} {
		h.inProgress, h.share, h.allowed = c.entered, c.share, c.allowed
		if want, _ := s.demand("d"); want != c.want {
			t.Errorf("with %d messages, a share of %d and %d allowed %d are wanted", c.entered, c.share, c.allowed, want)
		}
	}
	h.inProgress, h.share, h.allowed = 0, 10, 10
	if share := s.share("d", "team", now); share != (jobs.Share{Most: 1, Doubt: jobs.Unknown}) {
		t.Errorf("a team that has sent nothing there: %+v", share)
	}
	f := h.window("team")
	for _, c := range []struct {
		window int
		quick  bool
		most   int
	}{{0, false, 1}, {0, true, 1}, {9, true, 9}, {10, true, 10 * prefetch}, {10, false, 10}, {12, true, 12 * prefetch}} {
		f.limit, h.quick = c.window, c.quick
		if share := s.share("d", "team", now); share.Most != c.most {
			t.Errorf("a team with %d places, quick %v: %+v", c.window, c.quick, share)
		}
	}
	f.limit, f.talking, f.lastProgress = 5, 1, now.Add(-stallAfter)
	if share := s.share("d", "team", now); share != (jobs.Share{Most: 1, Doubt: jobs.Stuck}) {
		t.Errorf("a team whose mail stalls: %+v", share)
	}
	for long, want := range map[time.Duration]bool{quick - 1: true, quick: false} {
		if s.recordVerdicts("e", took, long, now); s.entry("e").quick != want {
			t.Errorf("%v is quick: %v", long, !want)
		}
	}
}

// Throttling replies from a host accumulate. Each message counts only once, with its worst refusal, and a refusal never
// raises the limit.
func TestStrikes(t *testing.T) {
	t.Parallel()
	now := time.Now()
	hinted := func(d time.Duration) []verdict { return []verdict{{state: delayed, throttle: true, hint: d}} }
	for _, c := range []struct {
		name     string
		heard    [][]verdict
		strikes  int
		pause    time.Duration
		allowed  int
		share    int
		reopened bool // a second throttling reply arrives when the first pause ends
	}{
		{"nothing", nil, 0, 0, 8, 8, false},
		{"one message for both reasons", [][]verdict{{{state: delayed, soft: true}, {state: delayed, throttle: true},
			{state: delayed, soft: true}}}, 2, 0, 8, 8, false},
		{"one of many recipients", [][]verdict{{{state: delivered}, {state: delayed, soft: true}}}, 1, 0, 8, 8, false},
		{"one that asks for no less", [][]verdict{{{state: delayed}}}, 0, 0, 8, 8, false},
		{"two in a row", [][]verdict{throttled, throttled}, 4, pauseMin, 4, 8, false},
		{"with a small share", [][]verdict{throttled, throttled}, 4, pauseMin, 1, 3, false},
		{"without a share", [][]verdict{throttled, throttled}, 4, pauseMin, 4, 0, false},
		{"a hint", [][]verdict{hinted(time.Minute)}, 2, time.Minute, 4, 8, false},
		{"a short hint", [][]verdict{hinted(time.Second)}, 2, pauseMin, 4, 8, false},
		{"a long hint", [][]verdict{hinted(time.Hour)}, 2, pauseMax, 4, 8, false},
		{"the longer hint", [][]verdict{{hinted(time.Minute)[0], hinted(2 * time.Minute)[0], hinted(time.Second)[0]}}, 2,
			2 * time.Minute, 4, 8, false},
		{"once more", [][]verdict{throttled, throttled}, 6, 2 * pauseMin, 2, 8, true},
	} {
		s := newShaper(8, 0)
		h := s.entry("d")
		h.share = c.share
		for _, v := range c.heard {
			s.recordVerdicts("d", v, time.Second, now)
		}
		if c.reopened {
			s.recordVerdicts("d", throttled, time.Second, h.until.Add(-1)) // a reply to a message sent before the pause
			s.recordVerdicts("d", throttled, time.Second, h.until)
		}
		if h.strikes != c.strikes || h.pause != c.pause || h.allowed != c.allowed {
			t.Errorf("%s: %d strikes, a pause of %v, %d connections", c.name, h.strikes, h.pause, h.allowed)
		}
	}
}

// One connection is restored after two successful deliveries per remaining connection.
func TestConnectionsComeBack(t *testing.T) {
	t.Parallel()
	s, now := newShaper(3, 0), time.Now()
	h := s.entry("d")
	h.setAllowed(1)
	for n, want := range []int{1, 2, 2, 2, 2, 3, 3, 3} {
		s.recordVerdicts("d", took, time.Second, now)
		if h.allowed != want {
			t.Errorf("after %d messages there are %d connections, want %d", n+1, h.allowed, want)
		}
	}
	h.setAllowed(2)
	h.deliveries = 3
	for range 2 {
		s.recordVerdicts("d", throttled, time.Second, now)
	}
	if h.allowed != 1 || h.deliveries != 0 {
		t.Errorf("%d connections, %d messages count after a pause", h.allowed, h.deliveries)
	}
}

// When the table of destinations is full, only destinations without jobs in progress are deleted. Among these, all
// destinations without a recent pause are deleted, and half of the recently paused ones.
func TestWhatShaperForgets(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s := newShaper(1, 0)
	for i := range 100 {
		h := s.entry(fmt.Sprintf("paused%d", i))
		h.pause, h.until = pauseMin, now.Add(-pauseMax)
	}
	s.entry("busy").inProgress = 1
	s.entry("fresh")
	long := s.entry("long ago")
	long.pause, long.until = pauseMin, now.Add(-pauseMax-1)
	s.forget(now)
	if n := len(s.shapes) - 1; s.shapes["busy"] == nil || s.shapes["fresh"] != nil || s.shapes["long ago"] != nil ||
		n < 49 || n > 52 {
		t.Errorf("%d of 100 that are paused are known: busy %v", n, s.shapes["busy"] != nil)
	}
	h := s.entry("d")
	for i := range windowsMax {
		h.window(fmt.Sprint(i))
	}
	h.windows["7"].talking = 1
	if len(h.windows) != windowsMax {
		t.Errorf("%d flows are known", len(h.windows))
	}
	if h.window("new"); len(h.windows) != 2 || h.windows["7"] == nil {
		t.Errorf("%d flows are known with one more", len(h.windows))
	}
}

// A rate limit of n messages a second allows an initial burst of n (at least one), followed by n messages a second.
func TestRateAtItsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newShaper(10, 4)
		n, again := s.limit("d", time.Now())
		if n != 4 || time.Until(again) != 250*time.Millisecond {
			t.Errorf("%d at first, and more in %v", n, time.Until(again))
		}
		for range 4 {
			at, err := s.acquire(t.Context(), "d", "team", "team")
			if err != nil {
				t.Fatal(err)
			}
			at.release(true, replied)
		}
		if begun := s.entry("d").started; begun != 4 {
			t.Errorf("%d messages were begun", begun)
		}
		if n, again = s.limit("d", time.Now()); n != 0 || time.Until(again) != 250*time.Millisecond {
			t.Errorf("after four %d, and more in %v", n, time.Until(again))
		}
		time.Sleep(100 * time.Millisecond)
		if n, again = s.limit("d", time.Now()); n != 0 || time.Until(again).Round(time.Millisecond) != 150*time.Millisecond {
			t.Errorf("a moment later %d, and more in %v", n, time.Until(again))
		}
		time.Sleep(time.Minute)
		if n, _ = s.limit("d", time.Now()); n != 4 {
			t.Errorf("a minute later %d", n)
		}
		at, err := s.acquire(t.Context(), "d", "team", "team")
		if err != nil {
			t.Fatal(err)
		}
		if n, _ = s.limit("d", time.Now()); n != 4 { // one of the jobs is in progress
			t.Errorf("with one in hand %d", n)
		}
		at.release(false, untried) // the message was not sent
		if n, _ = s.limit("d", time.Now()); n != 4 {
			t.Errorf("after one that was not sent %d", n)
		}
		slow := newShaper(10, 0.5)
		if n, again = slow.limit("d", time.Now()); n != 1 || time.Until(again) != 2*time.Second {
			t.Errorf("at one in two seconds %d at first, and more in %v", n, time.Until(again))
		}
	})
}

// A waiting message is woken only if it may start a conversation.
func TestWokenAsManyAsMayTalk(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	h.begin("a", "team", now)
	_, first, _ := h.begin("a", "team", now)
	_, second, _ := h.begin("a", "team", now)
	h.end("a", "team", unanswered, time.Second, now)
	if !closed(first) || closed(second) {
		t.Errorf("the first is woken: %v, the second: %v", closed(first), closed(second))
	}
}

// A connection that has ended is counted exactly once until it is closed.
func TestEndedConnectionsAreCounted(t *testing.T) {
	t.Parallel()
	p := newPool(10, 10)
	sockets := func(n int) (all []*socket) {
		for range n {
			near, far := net.Pipe()
			t.Cleanup(func() { far.Close() })
			all = append(all, &socket{Conn: near, pool: p, addr: "a"})
		}
		return all
	}
	all := sockets(3)
	p.markEnded(nil)
	p.markEnded(all[0])
	p.markEnded(all[0])
	p.markEnded(all[1])
	for i, want := range []int{1, 0, 0} {
		if i == 2 {
			all[2].Close() // the connection was closed before markEnded was called
			p.markEnded(all[2])
		} else {
			all[i].Close()
			all[i].Close()
		}
		if n := p.unused("a"); n != want || p.addresses()["a"] != (want > 0) || len(p.ending) != want {
			t.Errorf("after %d: %d are counted", i, n)
		}
	}
}

// trim keeps at most n connections to an address in total, whatever their TLS modes. In each TLS mode, the most
// recently used connections are kept.
func TestTrim(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{})
	for keep, want := range map[int]int{-1: 0, 0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 9: 4} {
		p := newPool(10, 10)
		var latest *pooledConn
		for _, mode := range []smtpclient.TLSMode{smtpclient.TLSOpportunistic, smtpclient.TLSNone} {
			for range 2 {
				k := poolKey{mx.Addr, mode}
				l, err := p.dial(k, func() (*smtpclient.Conn, error) {
					return smtpclient.Dial(t.Context(), mx.Addr,
						smtpclient.Options{})
				})
				if err != nil {
					t.Fatal(err)
				}
				if p.put(l); mode == smtpclient.TLSOpportunistic {
					latest = l
				}
			}
		}
		if p.trim(mx.Addr, keep); p.unused(mx.Addr) != want || p.open != want {
			t.Errorf("told to keep %d, it keeps %d, and %d are open", keep, p.unused(mx.Addr), p.open)
		}
		if l := p.get(poolKey{mx.Addr, smtpclient.TLSOpportunistic}, "", 0); want > 0 && l != latest {
			t.Errorf("told to keep %d, it keeps another than the latest", keep)
		} else if l != nil {
			p.put(l)
		}
		p.trim(mx.Addr, 0)
	}
}

// A connection that has been idle for exactly the duration idleMax is still in the pool.
func TestIdleConnectionsAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k := newPool(10, 10), poolKey{addr: "a"}
		p.idle[k] = []*pooledConn{{key: k, since: time.Now()}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { p.run(ctx); close(ended) }()
		time.Sleep(idleMax)
		synctest.Wait()
		if p.get(k, "", 0) == nil {
			t.Error("it is closed early")
		}
		cancel()
		<-ended
	})
}

// The conversation recorded for an attempt includes the conversations with all hosts tried earlier in the attempt.
func TestConversationOfSeveralHosts(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	for i, name := range []string{"one.test", "two.test", "three.test"} {
		n.host(destination, name, uint16(i), "")
	}
	s := newService(Config{Dial: n.dial, AllowPrivate: true}, Deps{DNS: n.dns})
	w, err := s.choose(t.Context(), destination, "", "", nil)
	if err != nil || len(w.hops) != 3 {
		t.Fatal(w.hops, err)
	}
	r := &route{team: "team", hops: w.hops}
	if news, err := s.talk(t.Context(), r, smtpclient.Envelope{To: []string{address(1)}}, nil); news != nil || err != nil {
		t.Fatal(news, err)
	}
	if lines := strings.Count(r.out.conversation, "\n"); lines != 3 || len(n.dialled()) != 3 ||
		!strings.Contains(r.out.host, "three.test") {
		t.Errorf("%d lines of %s: %s", lines, r.out.host, r.out.conversation)
	}
}

func TestAtMost(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]time.Duration{0: 5, 1: 1, 5: 5, 6: 5} {
		if got := atMost(d, 5); got != want {
			t.Errorf("%d is bounded to %d, want %d", d, got, want)
		}
	}
}

// After a message is composed, the memory reserved for it shrinks to its size if that releases at least 1 MiB.
func TestKeepReleasesMemory(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, message, want int64 }{
		{5 << 20, 2 << 20, 2 << 20},
		{3 << 20, 2 << 20, 2 << 20},
		{3<<20 - 1, 2 << 20, 3<<20 - 1},
		{1 << 20, 2 << 20, 1 << 20},
	} {
		s := newService(Config{}, Deps{})
		if !s.memory.TryAcquire("team", c.size) {
			t.Fatal("there is no memory")
		}
		msg := [][]byte{make([]byte, 100), make([]byte, c.message-100)}
		if left := s.shrinkReservation("team", c.size, msg); left != c.want || s.memory.Held("team") != c.want {
			t.Errorf("of %d bytes %d are left and %d held, want %d", c.size, left, s.memory.Held("team"), c.want)
		}
	}
}

// If a job is stopped while it waits for a slot, no outcome is recorded.
func TestStopWhileWaitingForASlot(t *testing.T) {
	n := one("")
	cfg := n.config(1)
	cfg.LaneConnections = 1
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	if _, err := f.service.shape.acquire(t.Context(), destination, "other", "other"); err != nil {
		t.Fatal(err)
	}
	stopped, cancel := context.WithCancelCause(t.Context())
	stopping := errors.New("stopping")
	cancel(stopping)
	_, err := f.service.withConnection(stopped, &try{job: jobs.Job{Lane: emails.Lane(destination, f.Acme.TeamID, false)}},
		&route{team: f.Acme.TeamID}, destination, smtpclient.Envelope{}, nil)
	if !errors.Is(err, stopping) {
		t.Errorf("without a place: %v", err)
	}
}
