package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/quota"
)

const (
	silentFor = 20 * time.Second // that an address is left alone after its first failure; it doubles with each
	silentMax = 10 * time.Minute
	deadFor   = 5 * time.Minute  // that an address stands behind others after it was left alone
	goodFor   = 10 * time.Minute // that an address that answered is trusted to answer again
	plainFor  = time.Hour        // that a host's broken TLS is remembered
	hostsKept = 10_000
	// dialsMax is how many connections may be on their way to an address that answered lately. To one that did not,
	// or that nobody has asked, it is one: the others wait for what comes of it, and hold no connection meanwhile.
	dialsMax = 8
)

// hosts remembers which addresses answer. It is shared by all destinations that lead to an address, however many names
// they have for it. What one team's messages meet after the greeting is remembered for that team alone, because it may
// be about the team.
//
// An address is left alone for no longer than it has been failing, so one that comes back is found after at most as
// much time again.
//
// Limits hold for the address that is dialled, however many destinations lead to it: a team has as many conversations
// with it as its flow allows, and all of them together have as many as a destination may, but for one of each team. Of
// these, this node has its share.
type hosts struct {
	silent, silentMax time.Duration
	patience          time.Duration // stallAfter
	full              int           // conversations with an address
	shares            *quota.Shares // nil when this node has the limits to itself
	pool              *pool         // of the connections that count against them

	mu    sync.Mutex
	known map[string]*host
	lines map[pair]*line
	plain map[string]time.Time // addresses whose TLS handshake fails, and until when that is believed
}

// host is what is known of one address.
type host struct {
	failure
	reached time.Time     // when it last greeted
	dialing int           // connections on their way
	news    chan struct{} // closed when the next of them arrives or fails; nil when nobody waits
	talking int           // conversations
	share   int           // conversations that this node may have
	waiting []waiter      // for one of these to end, the longest first
	awaking bool          // a timer is set to look whether they wait in vain
}

// pair is an address and a team whose messages go there.
type pair struct{ addr, team string }

// line is how a team's messages get on with an address after the greeting.
type line struct {
	failure
	flow
}

// waiter is a message that waits for its team's turn at an address.
type waiter struct {
	line *line
	turn chan struct{} // closed when it should ask again
}

// failure is why an address does not answer, since when, and how often.
type failure struct {
	times int // 0 for none
	at    time.Time
	until time.Time // when it is tried again
	why   answer
}

// newHosts remembers nothing yet. full is how many conversations there may be with an address.
func newHosts(full int) *hosts {
	return &hosts{silent: silentFor, silentMax: silentMax, patience: stallAfter, full: full, known: map[string]*host{},
		lines: map[pair]*line{}, plain: map[string]time.Time{}}
}

// keepTo has this node keep to its shares of the limits, with the connections of a pool. It is called before anything
// else.
func (h *hosts) keepTo(shares *quota.Shares, p *pool) {
	h.shares, h.pool = shares, p
	shares.Keep(addressShares, quota.Places{Use: h.use, Changed: h.changed, Busy: h.busy})
}

// prepare says that there is mail for an address, so that this node's share is known when it is to be dialled.
func (h *hosts) prepare(addr string) {
	h.shares.Places(quota.Key{Kind: addressShares, Name: addr}, h.full)
}

// use says how many connections to an address this node could use, and how many there are, those included that nobody
// uses.
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

// changed takes in that this node's share of the connections to an address is another. Kept connections beyond it are
// closed, because the share of another node is now the larger.
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

// makeRoom ends kept connections that, with another one, would be more than this node's share: those with another kind
// of TLS than the message needs.
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

// busy lists the addresses to which there are connections.
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

// failed reports whether the last failure is still held against an address.
func (f *failure) failed(now time.Time) bool { return f.times > 0 && now.Sub(f.until) <= deadFor }

// again takes in another failure. Those of connections that were under way when the first was seen count once.
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

// of returns what is known of an address, a new entry if nothing is.
func (h *hosts) of(addr string, now time.Time) *host {
	one := h.known[addr]
	if one == nil {
		if len(h.known) >= hostsKept {
			n := 0
			for a, old := range h.known {
				// Those that are left alone are worth most, yet half of them go too, or there would be no bound.
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

// failed reports whether an address failed lately, so that others are tried before it.
func (h *hosts) failed(addr string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.known[addr]
	return one != nil && one.failed(now)
}

// silence returns why an address is left alone at present, for all or for the messages of a team.
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

// claim asks for leave to dial an address. Who may dial says so with arrived, once. When others find out at present
// whether the address answers, news is closed when they know more; f is the failure because of which it is not worth
// to wait for them.
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

// What came of a connection.
type arrival uint8

const (
	unheard  arrival = iota // given up for a reason that is not the address's
	answered                // it greeted, or refused in words
	silent                  // it did not
)

// arrived says what came of a claim. why is the answer of who did not get through.
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

// line returns what is known of a team's messages to an address, a new entry if nothing is.
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

// stalled takes in that an address did not answer to a message of a team in time.
func (h *hosts) stalled(addr, team string, why answer, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(addr, team, now).again(why, h.silent, h.silentMax, now)
}

// moved takes in that an address answered to a message of a team.
func (h *hosts) moved(addr, team string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(addr, team, now).failure = failure{}
}

// begin asks for leave to talk to an address. Who may talk says with end what came of it. Who may not yet asks again
// when news is closed; f is the failure because of which it is not worth to wait.
func (h *hosts) begin(addr, team string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, l := h.of(addr, now), h.line(addr, team, now)
	one.share, _ = h.shares.Places(quota.Key{Kind: addressShares, Name: addr}, h.full)
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

// end says what came of a conversation that began.
func (h *hosts) end(addr, team string, what hearing, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.of(addr, now)
	one.talking--
	h.line(addr, team, now).end(what, took, h.patience, h.full, now)
	h.wake(one, now)
}

// wake lets those ask again who may talk now, in the order in which they came, and those who wait in vain.
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

// awake sees to it that those who wait at an address do not wait for ever for one that stalls.
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

// plainOnly reports whether a host's TLS handshake failed lately.
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
