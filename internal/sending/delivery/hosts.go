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
	backoffFirst = 20 * time.Second // wait after the first failure of an address; each further failure doubles it
	backoffMax   = 10 * time.Minute
	demotedFor   = 5 * time.Minute  // time after the wait during which other addresses are tried first
	reachableFor = 10 * time.Minute // time during which an address that answered is expected to answer
	plaintextFor = time.Hour        // time during which a failed TLS handshake is remembered
	hostsMax     = 10_000
	// dialsMax is how many connections at once may be opened to an address that answered recently. To any other
	// address, only one connection at a time may be opened: further messages wait for its result without holding a
	// connection.
	dialsMax = 8
)

// hosts remembers which addresses answer. All destinations that lead to an address share its entry, whatever names
// they use for it. Failures after the greeting are remembered for one team only, because they may be about the team.
//
// An address is never avoided for longer than it has been failing. If a host fails for an hour, its recovery is
// noticed within an hour.
//
// Limits apply to the address that is dialed, however many destinations lead to it. A team has as many conversations
// with an address as its window allows. All teams together have as many conversations as one destination may have,
// except that each team may have one. This node uses its share of these conversations.
type hosts struct {
	backoffFirst, backoffMax time.Duration
	patience                 time.Duration      // stallAfter
	full                     int                // limit of conversations with an address
	shares                   *nodelimits.Shares // nil if this node has all of each limit
	pool                     *pool              // the connections of this pool count against the limits

	mu            sync.Mutex
	entries       map[string]*host
	conversations map[connKey]*conversations
	plain         map[string]time.Time // when to forget that the TLS handshake of an address fails
}

// host is the state of one address.
type host struct {
	failure
	reached       time.Time     // time of the last greeting
	dialing       int           // connections that are being opened
	dialDone      chan struct{} // closed when the next connection opens or fails; nil when nothing waits
	talking       int           // conversations in progress
	share         int           // conversations that this node may have
	waiting       []waiter      // messages that wait for a conversation to end, the longest waiting first
	wakeScheduled bool          // a timer is set to check whether the waiters wait for stalled conversations
}

// connKey is an address and a team.
type connKey struct{ addr, team string }

// conversations is the state of a team's conversations with an address after the greeting.
type conversations struct {
	failure
	window
}

// waiter is a message that waits for its turn at an address.
type waiter struct {
	conversations *conversations
	turn          chan struct{} // closed when the message should call begin again
}

// failure records when, why and how often an address has failed.
type failure struct {
	times int // 0 if the address has not failed
	at    time.Time
	until time.Time // time when the address may be tried again
	why   answer
}

// newHosts returns hosts without entries. full limits the conversations with an address.
func newHosts(full int) *hosts {
	return &hosts{backoffFirst: backoffFirst, backoffMax: backoffMax, patience: stallAfter, full: full,
		entries:       map[string]*host{},
		conversations: map[connKey]*conversations{}, plain: map[string]time.Time{}}
}

// useShares limits this node to its shares of the limits. p is the pool whose connections count. Call it before any
// other method.
func (h *hosts) useShares(shares *nodelimits.Shares, p *pool) {
	h.shares, h.pool = shares, p
	limit := func(string) int { return h.full }
	shares.Register(addressShares, nodelimits.Places{Limit: limit, Use: h.demand, Changed: h.shareChanged, Busy: h.busy})
}

// requestShare requests this node's share of the connections to an address, so that the share is known when the
// address is dialed.
func (h *hosts) requestShare(addr string) {
	h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, h.full)
}

// demand returns how many connections to an address this node could use, and how many it has, including unused ones.
func (h *hosts) demand(addr string) (want, held int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	held = h.pool.unused(addr)
	one := h.entries[addr]
	if one == nil {
		return 0, held
	}
	want = one.talking
	next := map[*conversations]int{}
	for _, w := range one.waiting {
		if w.conversations.talking+next[w.conversations] < w.conversations.allowed() {
			next[w.conversations]++
			want++
		}
	}
	return min(want, h.full), one.talking + held
}

// shareChanged records this node's new share of the connections to an address. It closes kept connections beyond the
// share, because another node may now use that part of the limit.
func (h *hosts) shareChanged(addr string, n int) {
	h.mu.Lock()
	talking := 0
	if one := h.entries[addr]; one != nil {
		one.share, talking = n, one.talking
		h.wakeWaiters(one, time.Now())
	}
	h.mu.Unlock()
	h.pool.trim(addr, n-talking)
}

// closeExcess closes kept connections to an address if a new connection would exceed this node's share. The kept
// connections cannot be used, because the message needs another TLS mode.
func (h *hosts) closeExcess(addr string) {
	h.mu.Lock()
	one := h.entries[addr]
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
	for addr, one := range h.entries {
		if one.talking > 0 {
			all[addr] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// failed reports whether the last failure still counts against an address.
func (f *failure) failed(now time.Time) bool { return f.times > 0 && now.Sub(f.until) <= demotedFor }

// add records another failure. Failures of connections that began before the first failure was known count as one.
func (f *failure) add(why answer, first, most time.Duration, now time.Time) {
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

// entry returns the entry of an address, and makes one if there is none.
func (h *hosts) entry(addr string, now time.Time) *host {
	one := h.entries[addr]
	if one == nil {
		if len(h.entries) >= hostsMax {
			n := 0
			for a, old := range h.entries {
				// Entries of failing addresses are the most useful, yet half of them are deleted too, to keep the bound.
				if n++; old.unused() && (n%2 == 0 || !now.Before(old.until)) {
					delete(h.entries, a)
				}
			}
		}
		one = &host{share: h.full}
		h.entries[addr] = one
	}
	return one
}

func (one *host) unused() bool { return one.dialing == 0 && one.talking == 0 && len(one.waiting) == 0 }

// failed reports whether an address failed recently, so that others are tried before it.
func (h *hosts) failed(addr string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entries[addr]
	return one != nil && one.failed(now)
}

// backoff returns the earlier failure that forbids to try an address now. It may be a failure of the address or of one
// team's conversations.
func (h *hosts) backoff(addr, team string, now time.Time) (failure, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.entries[addr]; one != nil && now.Before(one.until) {
		return one.failure, true
	}
	if l := h.conversations[connKey{addr, team}]; l != nil && now.Before(l.until) {
		return l.failure, true
	}
	return failure{}, false
}

// claimDial requests permission to dial an address. A caller that may dial must call endDial once. If another
// connection is testing whether the address answers, news is closed when the result is known. Otherwise f is the
// failure because of which the caller must not wait.
func (h *hosts) claimDial(addr string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	if now.Before(one.until) {
		return false, nil, one.failure
	}
	suspect, most := one.failed(now), 1
	if !suspect && now.Sub(one.reached) < reachableFor {
		most = dialsMax
	}
	switch {
	case one.dialing < most:
		one.dialing++
		return true, nil, failure{}
	case suspect:
		return false, nil, one.failure
	}
	if one.dialDone == nil {
		one.dialDone = make(chan struct{})
	}
	return false, one.dialDone, failure{}
}

// dialResult is the result of opening a connection.
type dialResult uint8

const (
	inconclusive dialResult = iota // aborted for a reason that does not concern the address
	greeted                        // the host greeted, or refused with a reply
	noGreeting                     // the host did not answer
)

// endDial records the result of a dial that claimDial permitted. why is the answer for recipients if the connection
// was not opened.
func (h *hosts) endDial(addr string, what dialResult, why answer, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	one.dialing--
	switch what {
	case greeted:
		one.failure, one.reached = failure{}, now
	case noGreeting:
		one.add(why, h.backoffFirst, h.backoffMax, now)
	}
	if one.dialDone != nil {
		close(one.dialDone)
		one.dialDone = nil
	}
}

// conversationsOf returns the entry of a team's conversations with an address, and makes one if there is none.
func (h *hosts) conversationsOf(addr, team string, now time.Time) *conversations {
	k := connKey{addr, team}
	l := h.conversations[k]
	if l == nil {
		if len(h.conversations) >= hostsMax {
			n := 0
			for old, l := range h.conversations {
				if n++; l.talking == 0 && (n%2 == 0 || !now.Before(l.until)) {
					delete(h.conversations, old)
				}
			}
		}
		l = &conversations{}
		h.conversations[k] = l
	}
	return l
}

// recordStall records that an address did not answer a team's message in time.
func (h *hosts) recordStall(addr, team string, why answer, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conversationsOf(addr, team, now).add(why, h.backoffFirst, h.backoffMax, now)
}

// recordAnswer records that an address answered a team's message.
func (h *hosts) recordAnswer(addr, team string, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conversationsOf(addr, team, now).failure = failure{}
}

// begin requests permission to talk to an address. A caller that may talk must call end. Otherwise, if news is not
// nil, the caller calls begin again when news is closed. If news is nil, f is the failure because of which the caller
// must not wait.
func (h *hosts) begin(addr, team string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, l := h.entry(addr, now), h.conversationsOf(addr, team, now)
	one.share, _ = h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, h.full)
	switch {
	case l.stalls(now, h.patience):
		why := ownReply(451, "4.4.2", "the host leaves other messages without an answer at present")
		return false, nil, failure{times: 1, at: l.lastProgress, until: now, why: answer{stage: smtpclient.StageConnect,
			reply: why}}
	case l.talking < l.allowed() && (one.talking < one.share || l.talking == 0 && one.share > 0):
		l.begin(now)
		one.talking++
		return true, nil, failure{}
	}
	w := waiter{l, make(chan struct{})}
	one.waiting = append(one.waiting, w)
	h.scheduleWake(one)
	return false, w.turn, failure{}
}

// end records the end of a conversation that begin permitted.
func (h *hosts) end(addr, team string, what response, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	one.talking--
	h.conversationsOf(addr, team, now).end(what, took, h.patience, h.full, now)
	h.wakeWaiters(one, now)
}

// wakeWaiters wakes the waiters that may talk now, in the order of their arrival, and those that wait for stalled
// conversations.
func (h *hosts) wakeWaiters(one *host, now time.Time) {
	free, woken := one.share-one.talking, map[*conversations]int{}
	one.waiting = slices.DeleteFunc(one.waiting, func(w waiter) bool {
		l, more := w.conversations, woken[w.conversations]
		if !l.stalls(now, h.patience) {
			if l.talking+more >= l.allowed() || free <= 0 && (l.talking+more > 0 || one.share == 0) {
				return false
			}
			woken[l]++
			free--
		}
		close(w.turn)
		return true
	})
}

// scheduleWake sets a timer, so that waiters do not wait forever for stalled conversations.
func (h *hosts) scheduleWake(one *host) {
	if one.wakeScheduled || len(one.waiting) == 0 {
		return
	}
	one.wakeScheduled = true
	time.AfterFunc(h.patience, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		one.wakeScheduled = false
		h.wakeWaiters(one, time.Now())
		h.scheduleWake(one)
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
	if len(h.plain) >= hostsMax {
		clear(h.plain)
	}
	h.plain[addr] = now.Add(plaintextFor)
}
