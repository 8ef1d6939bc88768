package delivery

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

const (
	backoffFirst = 20 * time.Second // backoff after an address fails for the first time; doubles with each later failure
	backoffMax   = 10 * time.Minute
	demotedFor   = 5 * time.Minute  // how long other addresses are tried first after the backoff
	reachableFor = 10 * time.Minute // how long an address is considered reachable after it answered
	plaintextFor = time.Hour        // how long a failed TLS handshake is remembered
	hostsMax     = 10_000
	// dialsMax is the maximum number of concurrent dials to an address that answered recently. Any other address is dialed
	// by one message at a time. While an address is being dialed, other messages for it wait for the result without
	// holding a connection.
	dialsMax = 8
)

// hosts remembers which IP addresses and relays answer. A relay has its key (routing.Relay.Key) in place of an address.
// All destinations with the same address share its entry, even if their host names differ. Failures after the greeting
// are remembered per team, because the team's mail may have caused the failure.
//
// The backoff for an address never lasts longer than the address has already been failing. For example, if a host has
// failed for an hour, its recovery is noticed within an hour.
//
// Limits apply per dialed address, no matter how many destinations use the address. A team's window limits its
// concurrent conversations with an address. All teams together may have as many conversations with an address as with
// one destination, but each team may always have at least one. If several nodes share the limits, this node uses its
// share.
type hosts struct {
	backoffFirst, backoffMax time.Duration
	patience                 time.Duration      // stallAfter
	full                     int                // maximum number of concurrent conversations with an address
	relayFull                int                // and with a relay of the operator
	dials                    int                // dialsMax
	shares                   *nodelimits.Shares // nil if this node may use the full limits
	pool                     *pool              // connections in this pool count against the limits

	mu            sync.Mutex
	entries       map[string]*host
	conversations map[connKey]*conversations
	plain         map[string]time.Time // for each address, when to forget its failed TLS handshake
}

// host holds the state of one IP address, or of a relay.
type host struct {
	failure
	relay         bool
	full          int           // maximum number of conversations for all nodes
	reached       time.Time     // time of the last greeting
	dialing       int           // number of connections being opened
	dialDone      chan struct{} // closed when the next dial ends; nil if no message is waiting
	talking       int           // conversations in progress
	share         int           // maximum number of conversations for this node
	waiting       []waiter      // messages that wait for a conversation to end, longest wait first
	wakeScheduled bool          // whether a timer is set to check for stalled conversations
}

// connKey identifies a team's conversations with an address.
type connKey struct{ addr, team string }

// conversations holds the state of a team's conversations with an address, after the greeting.
type conversations struct {
	failure
	window
	relay bool
}

// waiter is a message that waits for its turn at an address.
type waiter struct {
	conversations *conversations
	turn          chan struct{} // closed when begin should be called again
}

// failure records when, why and how often an address has failed.
type failure struct {
	times int // 0 if the address has not failed
	at    time.Time
	until time.Time // time when the address may be tried again
	why   answer
}

// newHosts returns an empty hosts table. The parameter full is the maximum number of conversations with an address.
func newHosts(full int) *hosts {
	return &hosts{backoffFirst: backoffFirst, backoffMax: backoffMax, patience: stallAfter, full: full, relayFull: full,
		dials: dialsMax, entries: map[string]*host{},
		conversations: map[connKey]*conversations{}, plain: map[string]time.Time{}}
}

// useShares restricts this node to its shares of the limits. Connections in the pool p count against this node's
// shares. Call useShares before any other method.
func (h *hosts) useShares(shares *nodelimits.Shares, p *pool) {
	h.shares, h.pool = shares, p
	shares.Register(addressShares, nodelimits.Places{Limit: h.limit, Use: h.demand, Changed: h.shareChanged, Busy: h.busy})
}

// requestShare requests this node's share of the connections to an address, so that the share is known when the
// address is dialed.
func (h *hosts) requestShare(addr string) {
	if !routing.IsRelayKey(addr) {
		h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, h.limit(addr))
	}
}

// limit returns the maximum number of conversations with an address for all nodes together.
func (h *hosts) limit(addr string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	if one := h.entries[addr]; one != nil {
		return one.full
	}
	return h.fullOf(addr)
}

// raise allows at least n conversations with an address, because the operator allows as many connections to one of its
// destinations.
func (h *hosts) raise(addr string, n int, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	one.full = max(one.full, n)
}

// demand returns two numbers: how many connections to an address this node could use, and how many it has open,
// including idle connections.
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
		if w.conversations.talking+next[w.conversations] < h.allowed(one, w.conversations) {
			next[w.conversations]++
			want++
		}
	}
	return min(want, one.full), one.talking + held
}

// shareChanged records this node's new share of the connections to an address. Idle connections that exceed the share
// are closed, because another node may now use that part of the limit.
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

// closeExcess closes idle connections to an address if a new connection would exceed this node's share. The new message
// cannot use the idle connections, because it needs another TLS mode or host name, or fewer messages over a connection.
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

// busy returns the addresses that have open connections. Nodes do not share the limits of relays.
func (h *hosts) busy() []string {
	all := h.pool.addresses()
	maps.DeleteFunc(all, func(addr string, _ bool) bool { return routing.IsRelayKey(addr) })
	h.mu.Lock()
	defer h.mu.Unlock()
	for addr, one := range h.entries {
		if one.talking > 0 && !one.relay {
			all[addr] = true
		}
	}
	return slices.Collect(maps.Keys(all))
}

// failed reports whether the last failure still affects the order in which addresses are tried.
func (f *failure) failed(now time.Time) bool { return f.times > 0 && now.Sub(f.until) <= demotedFor }

// add records another failure. Failures during a backoff do not extend the backoff, because their connections began
// before the first failure was known.
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

// entry returns the entry for an address and creates it if it does not exist.
func (h *hosts) entry(addr string, now time.Time) *host {
	one := h.entries[addr]
	if one == nil {
		if len(h.entries) >= hostsMax {
			n := 0
			for a, old := range h.entries {
				// To limit the table's size, half of the unused entries in backoff are deleted too, although these entries are the
				// most useful.
				if n++; old.unused() && (n%2 == 0 || !now.Before(old.until)) {
					delete(h.entries, a)
				}
			}
		}
		one = &host{relay: routing.IsRelayKey(addr), full: h.fullOf(addr), share: h.fullOf(addr)}
		h.entries[addr] = one
	}
	return one
}

func (one *host) unused() bool { return one.dialing == 0 && one.talking == 0 && len(one.waiting) == 0 }

// failed reports whether an address failed recently. Other addresses are tried before a failed address.
func (h *hosts) failed(addr string, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entries[addr]
	if one != nil && one.relay { // the operator's order applies again after the rest
		return one.times > 0 && now.Before(one.until)
	}
	return one != nil && one.failed(now)
}

// backoff reports whether an address is in backoff, and returns the failure that caused the backoff. The failure may
// concern the address or only the team's conversations.
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

// claimDial requests permission to dial an address. A caller that is allowed to dial must call endDial exactly once. If
// another message is dialing the address, claimDial returns a channel that is closed when the result is known. A result
// of may == false and news == nil means that the caller should report the failure f instead of waiting.
func (h *hosts) claimDial(addr string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	if now.Before(one.until) {
		return false, nil, one.failure
	}
	suspect, most := one.failed(now), 1
	if !suspect && now.Sub(one.reached) < reachableFor {
		if most = h.dials; one.relay {
			most = one.full
		}
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
	inconclusive dialResult = iota // the dial was aborted for a reason unrelated to the address
	greeted                        // the host sent a greeting or a refusal
	noGreeting                     // the host did not answer
)

// dialChange says how the result of a dial changes what is known about an address.
type dialChange uint8

const (
	unchanged    dialChange = iota
	beganToFail             // the address begins a backoff
	answersAgain            // the address answers after it has failed
)

// endDial records the result of a dial that was permitted by claimDial. If no connection was opened, the parameter why
// is the answer to record for the recipients.
func (h *hosts) endDial(addr string, what dialResult, why answer, now time.Time) (changed dialChange) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	one.dialing--
	switch what {
	case greeted:
		if one.times > 0 {
			changed = answersAgain
		}
		one.failure, one.reached = failure{}, now
	case noGreeting:
		if !now.Before(one.until) {
			changed = beganToFail
		}
		first, longest := h.backoffs(one)
		one.add(why, first, longest, now)
	}
	if one.dialDone != nil {
		close(one.dialDone)
		one.dialDone = nil
	}
	return changed
}

// conversationsOf returns the entry for a team's conversations with an address, and creates it if it does not exist.
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
		l = &conversations{relay: routing.IsRelayKey(addr)}
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

// begin requests permission to talk to an address. If begin returns may == true, the caller must call end after the
// conversation. If begin returns may == false and a channel, the caller should call begin again when the channel is
// closed. A result of may == false and news == nil means that the caller should report the failure f instead of
// waiting.
func (h *hosts) begin(addr, team string, now time.Time) (may bool, news <-chan struct{}, f failure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, l := h.entry(addr, now), h.conversationsOf(addr, team, now)
	if one.share = one.full; !one.relay {
		one.share, _ = h.shares.Places(nodelimits.Key{Kind: addressShares, Name: addr}, one.full)
	}
	switch {
	case h.stalls(l, now):
		why := ownReply(451, "4.4.2", "the host leaves other messages without an answer at present")
		return false, nil, failure{times: 1, at: l.lastProgress, until: now, why: answer{stage: smtpclient.StageConnect,
			reply: why}}
	case l.talking < h.allowed(one, l) && (one.talking < one.share || l.talking == 0 && one.share > 0):
		l.begin(now)
		one.talking++
		return true, nil, failure{}
	}
	w := waiter{l, make(chan struct{})}
	one.waiting = append(one.waiting, w)
	h.scheduleWake(one)
	return false, w.turn, failure{}
}

// end records the end of a conversation that was permitted by begin.
func (h *hosts) end(addr, team string, what response, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := h.entry(addr, now)
	one.talking--
	h.conversationsOf(addr, team, now).end(what, took, h.patience, one.full, now)
	h.wakeWaiters(one, now)
}

// wakeWaiters wakes the waiters that may now start a conversation, in order of arrival; it also wakes all waiters from
// teams whose conversations have stalled.
func (h *hosts) wakeWaiters(one *host, now time.Time) {
	free, woken := one.share-one.talking, map[*conversations]int{}
	one.waiting = slices.DeleteFunc(one.waiting, func(w waiter) bool {
		l, more := w.conversations, woken[w.conversations]
		if !h.stalls(l, now) {
			if l.talking+more >= h.allowed(one, l) || free <= 0 && (l.talking+more > 0 || one.share == 0) {
				return false
			}
			woken[l]++
			free--
		}
		close(w.turn)
		return true
	})
}

// scheduleWake sets a timer that calls wakeWaiters, so that no message waits forever because of stalled conversations.
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

// plainOnly reports whether a host must be contacted without TLS because its TLS handshake failed recently.
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
