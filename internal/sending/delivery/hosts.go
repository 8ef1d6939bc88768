package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/nodelimits"
)

const (
	silentFor = 20 * time.Second // that an address is left alone after a first failure; doubled with each
	silentMax = 10 * time.Minute
	deadFor   = 5 * time.Minute  // how long after that it is tried only after others
	goodFor   = 10 * time.Minute // how long an address that answered is expected to answer again
	plainFor  = time.Hour        // how long a host's broken TLS is remembered
	hostsKept = 10_000
	// dialsMax is how many connections may be being opened at once to an address that answered recently. To any other
	// address it is one: further messages wait for its result, and hold no connection meanwhile.
	dialsMax = 8
)

// hosts remembers which addresses answer. An address is shared by all destinations that lead to it, whatever names they
// use for it. Failures after the greeting are remembered for one team only, because they may be about the team.
//
// An address is left alone for no longer than it has been failing, so the recovery of a host is noticed after at most
// as much time again.
//
// Limits apply to the address that is dialed, however many destinations lead to it. A team has as many conversations
// with it as its flow allows. All teams together have as many as one destination may have, except that each team may
// have one. This node uses its share of these.
type hosts struct {
	silent, silentMax time.Duration
	patience          time.Duration      // stallAfter
	full              int                // limit of conversations with an address
	shares            *nodelimits.Shares // nil when this node has the limits to itself
	pool              *pool              // its connections count against the limits

	mu    sync.Mutex
	known map[string]*host
	lines map[pair]*line
	plain map[string]time.Time // addresses whose TLS handshake fails, and until when that is remembered
}

// host is what is known about one address.
type host struct {
	failure
	reached time.Time     // when it last greeted
	dialing int           // connections that are being opened
	news    chan struct{} // closed when the next of them opens or fails; nil when nothing waits
	talking int           // conversations in progress
	share   int           // conversations that this node may have
	waiting []waiter      // for a conversation to end, the longest first
	awaking bool          // a timer is set to check whether they wait for stalled conversations
}

// pair is an address and a team.
type pair struct{ addr, team string }

// line is the state of a team's conversations with an address after the greeting.
type line struct {
	failure
	flow
}

// waiter is a message that waits for its turn at an address.
type waiter struct {
	line *line
	turn chan struct{} // closed when it should call begin again
}

// failure records why, since when and how often an address has failed.
type failure struct {
	times int // 0 for none
	at    time.Time
	until time.Time // when it may be tried again
	why   answer
}

// newHosts returns hosts without entries. full is the limit of conversations with an address.
func newHosts(full int) *hosts {
	return &hosts{silent: silentFor, silentMax: silentMax, patience: stallAfter, full: full, known: map[string]*host{},
		lines: map[pair]*line{}, plain: map[string]time.Time{}}
}

// keepTo limits this node to its shares of the limits. p is the pool whose connections count. It must be called before
// any other method.
func (h *hosts) keepTo(shares *nodelimits.Shares, p *pool) {
	h.shares, h.pool = shares, p
	limit := func(string) int { return h.full }
	shares.Keep(addressShares, nodelimits.Places{Limit: limit, Use: h.use, Changed: h.changed, Busy: h.busy})
}

// prepare requests this node's share of the connections to an address, so that it is known when the address is dialed.
func (h *hosts) prepare(addr string) {
	h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, h.full)
}

// use returns how many connections to an address this node could use, and how many it has, including unused ones.
func (h *hosts) use(addr string) (want, held int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held = h.pool.unused(addr)
	one := h.known[addr]
	if one == nil {
		return 0, held
	}
	want = one.talking
	next := map[*line]int{}
	for _, w := range one.waiting {
		if w.line.talking+next[w.line] < w.line.places() {
			next[w.line]++
			want++
		}
	}
	return min(want, h.full), one.talking + held
}

// changed records this node's new share of the connections to an address. Kept connections beyond it are closed,
// because another node may now use that part of the limit.
func (h *hosts) changed(addr string, n int) {
	h.mu.Lock()
	talking := 0
	if one := h.known[addr]; one != nil {
		one.share, talking = n, one.talking
		h.wake(one, time.Now())
	}
	h.mu.Unlock()
	h.pool.trim(addr, n-talking)
}

// makeRoom closes kept connections to an address that, together with a new one, would exceed this node's share. They
// have another TLS mode than the message needs.
func (h *hosts) makeRoom(addr string) {
	h.mu.Lock()
	one := h.known[addr]
	if one == nil {
		h.mu.Unlock()
		return
	}
	n := one.share - one.talking
	h.mu.Unlock()
	h.pool.trim(addr, n)
}

// busy returns the addresses to which there are connections.
func (h *hosts) busy() []string {
	all := h.pool.addresses()
	h.mu.Lock()
	defer h.mu.Unlock()
	for addr, one := range h.known {
		if one.talking > 0 {
			all[addr] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// failed reports whether the last failure still counts against an address.
func (f *failure) failed(now time.Time) bool { return f.times > 0 && now.Sub(f.until) <= deadFor }

// again records another failure. Failures of connections that began before the first failure was known count as one.
func (f *failure) again(why answer, first, most time.Duration, now time.Time) {
	if !f.failed(now) {
		f.times = 0
	}
	f.why = why
	if f.times > 0 && now.Before(f.until) {
		return
	}
	f.at = now
	f.until = now.Add(min(first<<min(f.times, 20), most))
	f.times++
}

// of returns the entry of an address, and makes one if there is none.
func (h *hosts) of(addr string, now time.Time) *host {
	one := h.known[addr]
	if one == nil {
		if len(h.known) >= hostsKept {
			n := 0
			for a, old := range h.known {
				// Entries of failing addresses are the most useful, yet half of them are deleted too, to keep the bound.
				if n++; old.unused() && (n%2 == 0 || !now.Before(old.until)) {
					delete(h.known, a)
				}
			}
		}
		one = &host{share: h.full}
		h.known[addr] = one
	}
	return one
}

func (one *host) unused() bool { return one.dialing == 0 && one.talking == 0 && len(one.waiting) == 0 }

// failed reports whether an address failed recently, so that others are tried before it.
func (h *hosts) failed(addr string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.known[addr]
	return one != nil && one.failed(now)
}

// silence returns the failure for which an address is left alone now, either by all or by one team.
func (h *hosts) silence(addr, team string, now time.Time) (failure, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.known[addr]; one != nil && now.Before(one.until) {
		return one.failure, true
	}
	if l := h.lines[pair{addr, team}]; l != nil && now.Before(l.until) {
		return l.failure, true
	}
	return failure{}, false
}

// claim requests permission to dial an address. A caller that may dial must call arrived once. If other connections are
// finding out whether the address answers, news is closed when they know. Otherwise f is the failure because of which
// the address should not be waited for.
func (h *hosts) claim(addr string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(addr, now)
	if now.Before(one.until) {
		return false, nil, one.failure
	}
	suspect, most := one.failed(now), 1
	if !suspect && now.Sub(one.reached) < goodFor {
		most = dialsMax
	}
	switch {
	case one.dialing < most:
		one.dialing++
		return true, nil, failure{}
	case suspect:
		return false, nil, one.failure
	}
	if one.news == nil {
		one.news = make(chan struct{})
	}
	return false, one.news, failure{}
}

// arrival is the result of opening a connection.
type arrival uint8

const (
	unheard  arrival = iota // given up for a reason that does not concern the address
	answered                // it greeted us, or refused with a reply
	silent                  // it did not answer
)

// arrived records the result of a claim. why is the answer for recipients if the connection was not opened.
func (h *hosts) arrived(addr string, what arrival, why answer, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(addr, now)
	one.dialing--
	switch what {
	case answered:
		one.failure, one.reached = failure{}, now
	case silent:
		one.again(why, h.silent, h.silentMax, now)
	}
	if one.news != nil {
		close(one.news)
		one.news = nil
	}
}

// line returns the entry of a team's conversations with an address, and makes one if there is none.
func (h *hosts) line(addr, team string, now time.Time) *line {
	k := pair{addr, team}
	l := h.lines[k]
	if l == nil {
		if len(h.lines) >= hostsKept {
			n := 0
			for old, l := range h.lines {
				if n++; l.talking == 0 && (n%2 == 0 || !now.Before(l.until)) {
					delete(h.lines, old)
				}
			}
		}
		l = &line{}
		h.lines[k] = l
	}
	return l
}

// stalled records that an address did not answer a team's message in time.
func (h *hosts) stalled(addr, team string, why answer, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(addr, team, now).again(why, h.silent, h.silentMax, now)
}

// moved records that an address answered a team's message.
func (h *hosts) moved(addr, team string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(addr, team, now).failure = failure{}
}

// begin requests permission to talk to an address. A caller that may talk must call end. One that may not calls begin
// again when news is closed; if news is nil, f is the failure because of which the address should not be waited for.
func (h *hosts) begin(addr, team string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, l := h.of(addr, now), h.line(addr, team, now)
	one.share, _ = h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, h.full)
	switch {
	case l.stalls(now, h.patience):
		why := local(451, "4.4.2", "the host leaves other messages without an answer at present")
		return false, nil, failure{times: 1, at: l.since, until: now, why: answer{stage: smtpclient.StageConnect, reply: why}}
	case l.talking < l.places() && (one.talking < one.share || l.talking == 0 && one.share > 0):
		l.begin(now)
		one.talking++
		return true, nil, failure{}
	}
	w := waiter{l, make(chan struct{})}
	one.waiting = append(one.waiting, w)
	h.awake(one)
	return false, w.turn, failure{}
}

// end records the end of a conversation that begin permitted.
func (h *hosts) end(addr, team string, what hearing, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(addr, now)
	one.talking--
	h.line(addr, team, now).end(what, took, h.patience, h.full, now)
	h.wake(one, now)
}

// wake wakes the waiters that may talk now, in the order in which they came, and those that wait for stalled
// conversations.
func (h *hosts) wake(one *host, now time.Time) {
	free, woken := one.share-one.talking, map[*line]int{}
	one.waiting = slices.DeleteFunc(one.waiting, func(w waiter) bool {
		l, more := w.line, woken[w.line]
		if !l.stalls(now, h.patience) {
			if l.talking+more >= l.places() || free <= 0 && (l.talking+more > 0 || one.share == 0) {
				return false
			}
			woken[l]++
			free--
		}
		close(w.turn)
		return true
	})
}

// awake makes sure that waiters do not wait forever for conversations that stall.
func (h *hosts) awake(one *host) {
	if one.awaking || len(one.waiting) == 0 {
		return
	}
	one.awaking = true
	time.AfterFunc(h.patience, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		one.awaking = false
		h.wake(one, time.Now())
		h.awake(one)
	})
}

// plainOnly reports whether a host's TLS handshake failed recently.
func (h *hosts) plainOnly(addr string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return now.Before(h.plain[addr])
}

func (h *hosts) rememberPlain(addr string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.plain) >= hostsKept {
		clear(h.plain)
	}
	h.plain[addr] = now.Add(plainFor)
}
