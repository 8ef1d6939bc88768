package delivery

import (
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// The operator has chosen the relays, and all mail may go to one of them. A node may therefore open as many connections
// to a relay as to all destinations together (Config.MaxConnections), and no window limits them. However, a relay that
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

// learn adjusts the number of useful connections to the relay after a conversation. The number grows only after more
// slow than prompt conversations, so that a node that is busy for a moment does not open connections.
func (s *shaper) learn(destination string, out outcome) {
	if out.response != replied || s.limitsOf(destination).First == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.entry(destination)
	if h.pace.slow--; out.took >= relaySlow {
		h.pace.slow += 2
	}
	h.pace.slow = min(max(h.pace.slow, 0), h.limits.Connections)
	h.setUseful(max(h.pace.slow, h.limits.First))
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
	if h.limits.First == 0 || h.pace.watched || !h.saturated() {
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
	h.pace.slow = min(2*h.useful, h.limits.Connections)
	h.setUseful(h.pace.slow)
	return true
}

// saturated reports whether a team uses all connections that are useful, although the host may accept more.
func (h *shape) saturated() bool {
	n := h.connections()
	return n == h.useful && n < min(h.allowed, h.share) && h.turns.Busy() >= n-reservedConnections(n)
}

// fullOf returns the maximum number of conversations with an address or a relay. Windows do not limit conversations
// with a relay.
func (h *hosts) fullOf(at string) int {
	if routing.IsRelayKey(at) {
		return h.relayFull
	}
	return h.full
}

// allowed returns the maximum number of a team's concurrent conversations with an address.
func (h *hosts) allowed(one *host, l *conversations) int {
	if one.relay {
		return one.full
	}
	return l.allowed()
}

// stalls reports whether a team's conversations with an address have waited too long for an answer.
func (h *hosts) stalls(l *conversations, now time.Time) bool {
	return !l.relay && l.stalls(now, h.patience)
}

// backoffs returns the first and the longest backoff of an address. A relay rests only shortly, because much mail waits
// for it, and not for the same time on all nodes.
func (h *hosts) backoffs(one *host) (first, longest time.Duration) {
	if one.relay {
		rest := jobs.Jitter(h.backoffFirst)
		return rest, rest
	}
	return h.backoffFirst, h.backoffMax
}

// relayHops returns the relays to try, in order. The parameter enforced says that the sending domain or the destination
// requires TLS.
func (s *Service) relayHops(p *routing.Path, enforced bool) []hop {
	hops := make([]hop, len(p.Relays))
	for i, r := range p.Relays {
		hops[i] = hop{name: hostOf(r.Address), addr: r.Address, pref: uint16(i),
			demand: demand{mode: relayMode(r, enforced)}, relay: r, spare: len(p.Relays) > 1}
	}
	s.prefer(hops)
	return hops
}

// relayMode returns the TLS mode for connections to a relay. With enforced, the email may not leave without TLS.
func relayMode(r *routing.Relay, enforced bool) smtpclient.TLSMode {
	switch r.TLS {
	case smtpclient.TLSNone: // the operator may choose plain text, for example for a relay on the same machine
		if enforced && !onThisMachine(r.Address) {
			return smtpclient.TLSRequired
		}
	case smtpclient.TLSOpportunistic: // a password is sent only to a verified relay or to one on this machine
		if enforced || r.Username != "" && !onThisMachine(r.Address) {
			return smtpclient.TLSRequired
		}
	}
	return r.TLS
}

// rests reports whether the failure of a connection makes a relay rest, so that the next one is tried first. A relay
// that is the only one rests only if it does not answer, like every other host.
func (h *hop) rests(e *smtpclient.Error) bool {
	if !h.spare {
		return false
	}
	switch e.Stage {
	case smtpclient.StageConnect, smtpclient.StageGreeting, smtpclient.StageHello, smtpclient.StageTLS,
		smtpclient.StageAuth:
		return true
	}
	return false
}

// logRelay logs that a relay begins or ends to rest.
func (s *Service) logRelay(h hop, changed dialChange, why answer) {
	switch {
	case h.relay == nil:
	case changed == beganToFail:
		s.p.Log.Warn("a relay rests after a failure; mail goes to the next one, if there is one", "relay", h.relay.Name,
			"answer", why.reply.String())
	case changed == answersAgain:
		s.p.Log.Info("a relay answers again", "relay", h.relay.Name)
	}
}

// relayNameError means that DNS did not say which address the relay has. A name that does not exist is not such an
// error: it is a wrong setting, and email goes by its retry schedule, as if the relay refused connections.
type relayNameError struct{ err error }

func (e *relayNameError) Error() string { return "look up the relay's address: " + e.err.Error() }
func (e *relayNameError) Unwrap() error { return e.err }

// Outage reports that no message is to blame (see fault.IsOutage).
func (e *relayNameError) Outage() bool { return true }
