package delivery

import "time"

// The operator has chosen the relay, and all mail goes to it. A node may therefore open as many connections to the
// relay as to all destinations together (Config.MaxConnections), and no window limits them. However, a relay that
// answers promptly needs few connections, and a message should use an open connection instead of opening another one.
// A node therefore opens at first as many connections as a destination may have (Config.LaneConnections). It opens more
// only if its messages use all of these and the relay's conversations take long.

const (
	// relaySlow is the duration of a conversation from which more connections to the relay are useful. It is long,
	// because a node without free processor time takes over 100 ms for a conversation with a relay that answers at once.
	// More connections would not help such a node.
	relaySlow = 300 * time.Millisecond
	// relaySilence is how long all connections to the relay may be in use without the end of any conversation before
	// their number is doubled.
	relaySilence = 500 * time.Millisecond
)

// pace records how long a relay's conversations take.
type pace struct {
	slow    int  // conversations of at least relaySlow minus shorter ones, between 0 and the maximum of connections
	ended   int  // number of conversations that have ended
	watched bool // whether a timer is set to check that conversations end
}

// trust makes all destinations relays of the operator: a relay may have n connections, of which it gets the first ones
// without a condition.
func (s *shaper) trust(n, first int) { s.connections, s.first = n, min(n, first) }

// learn adjusts the number of useful connections to the relay after a conversation. The number grows only after more
// slow than prompt conversations, so that a node that is busy for a moment does not open connections.
func (s *shaper) learn(destination string, out outcome) {
	if s.first == 0 || out.response != replied {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.entry(destination)
	if h.pace.slow--; out.took >= relaySlow {
		h.pace.slow += 2
	}
	h.pace.slow = min(max(h.pace.slow, 0), s.connections)
	h.setUseful(max(h.pace.slow, s.first))
}

// setUseful sets the number of connections that are useful.
func (h *shape) setUseful(n int) {
	if n != h.useful {
		h.useful = n
		h.turns.SetLimit(h.connections(), reservedConnections(h.connections()))
	}
}

// watch sets a timer that doubles the number of useful connections if all of them are in use and no conversation ends.
// Without the timer, messages would wait until a relay that takes a minute for each message has answered.
func (s *shaper) watch(destination string, h *shape) {
	if s.first == 0 || h.pace.watched || !h.saturated() {
		return
	}
	h.pace.watched = true
	ended := h.pace.ended
	time.AfterFunc(s.silence, func() {
		if s.widen(destination, h, ended) && s.onShareRaised != nil {
			s.onShareRaised(destination)
		}
	})
}

// widen doubles the number of useful connections if no conversation has ended since the counter was read, and reports
// whether it did.
func (s *shaper) widen(destination string, h *shape, ended int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.pace.watched = false
	if h.pace.ended != ended || !h.saturated() {
		s.watch(destination, h)
		return false
	}
	h.pace.slow = min(2*h.useful, s.connections)
	h.setUseful(h.pace.slow)
	return true
}

// saturated reports whether a team uses all connections that are useful, although the host may accept more.
func (h *shape) saturated() bool {
	n := h.connections()
	return n == h.useful && n < min(h.allowed, h.share) && h.turns.Busy() >= n-reservedConnections(n)
}

// trust makes all addresses those of the operator's relay: an address may have n conversations at once, and windows do
// not limit them. The backoff after a failure is short, because all mail waits for the relay.
func (h *hosts) trust(n int) {
	h.trusted, h.full, h.dials, h.backoffMax = true, n, n, backoffFirst
}

// allowed returns the maximum number of a team's concurrent conversations with an address.
func (h *hosts) allowed(l *conversations) int {
	if h.trusted {
		return h.full
	}
	return l.allowed()
}

// stalls reports whether a team's conversations with an address have waited too long for an answer.
func (h *hosts) stalls(l *conversations, now time.Time) bool {
	return !h.trusted && l.stalls(now, h.patience)
}

// relayNameError means that DNS did not say which address the relay has. A name that does not exist is not such an
// error: it is a wrong setting, and email goes by its retry schedule, as if the relay refused connections.
type relayNameError struct{ err error }

func (e *relayNameError) Error() string { return "look up the relay's address: " + e.err.Error() }
func (e *relayNameError) Unwrap() error { return e.err }

// Outage reports that no message is to blame (see fault.IsOutage).
func (e *relayNameError) Outage() bool { return true }
