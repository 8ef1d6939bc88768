package delivery

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

const (
	pauseMin = 30 * time.Second
	pauseMax = 15 * time.Minute
	// A destination is paused when its strikes since the last delivery reach pauseThreshold. A refusal that asks the
	// sender to send less mail counts as 2 strikes. Any other temporary refusal that may be about the sender counts as 1
	// strike. A single refusal therefore never pauses a destination unless the reply says how long to wait.
	pauseThreshold = 3
	shapesMax      = 50_000
	windowsMax     = 1000 // of one destination
	// quick is the longest duration of a short conversation. If the last conversation with a destination was short, more
	// jobs than connections may be claimed for the destination.
	quick = 200 * time.Millisecond
	// If other nodes use all connections to a destination, this node checks its share again after shareWait.
	shareWait = time.Second
	// heldWait is the wait before mail to a destination that the operator has paused is looked at again.
	heldWait = 30 * time.Second
)

// These are the kinds of limits that the nodes share.
const (
	connectionShares = "connections" // to a destination
	rateShares       = "rate"        // to a destination
	addressShares    = "address"     // connections to an IP address
)

// shaper limits the number of connections to each destination and the number of messages per second. When a destination
// asks for less mail, the shaper halves the number of connections and pauses the destination. Each later pause is twice
// as long. Successful deliveries then slowly restore the connections. If several nodes share a limit, the shaper uses
// this node's share.
type shaper struct {
	limitsOf      func(destination string) routing.Limits
	shares        *nodelimits.Shares // nil if this node may use the full limits
	onShareRaised func(destination string)
	patience      time.Duration // stallAfter
	silence       time.Duration // relaySilence
	held          time.Duration // heldWait
	now           func() time.Time

	mu     sync.Mutex
	shapes map[string]*shape
}

// shape holds the shaper's state for one destination.
type shape struct {
	limits     routing.Limits   // as of the last use
	allowed    int              // estimate of how many connections the host accepts
	share      int              // maximum number of connections for this node
	unknown    bool             // this node's share is not known yet
	useful     int              // how many connections the duration of the conversations makes useful; see relay.go
	turns      *fairshare.Turns // teams take turns; the limit is the smallest of allowed, share and useful
	inProgress int              // jobs that have a slot or wait for one

	windows map[string]*window // by team
	pace    pace

	quick      bool // the last conversation took less than the constant quick
	strikes    int  // weighted sum of refusals since the last delivery
	pause      time.Duration
	until      time.Time // of the pause
	pausedAt   time.Time // when the pause began
	pausedBy   string    // the codes of the answer that caused the pause
	fullAt     time.Time // when all connections were last found to be in use
	spentAt    time.Time // when the rate limit was last found to be used up
	deliveries int       // deliveries since a connection was last restored
	rate       float64   // this node's share of the rate limit
	tokens     float64   // how many messages the rate limit allows now
	filledAt   time.Time
	started    int       // messages started in this second
	second     time.Time // when the current second began
}

// newShaper returns a shaper with the same limits for all destinations.
func newShaper(connections int, rate float64) *shaper {
	l := routing.Limits{Connections: connections, Rate: rate}
	return &shaper{limitsOf: func(string) routing.Limits { return l }, patience: stallAfter, silence: relaySilence,
		held: heldWait, now: time.Now, shapes: map[string]*shape{}}
}

// useShares restricts this node to its shares of the limits. Call useShares before any other method. The function grown
// is called after this node's share of the connections to a destination has grown.
func (s *shaper) useShares(shares *nodelimits.Shares, grown func(destination string)) {
	s.shares, s.onShareRaised = shares, grown
	limit := func(destination string) int { return s.limitsOf(destination).Connections }
	shares.Register(connectionShares, nodelimits.Places{Limit: limit, Use: s.demand, Changed: s.shareChanged,
		Busy: s.busy})
}

func (s *shaper) entry(destination string) *shape {
	h := s.shapes[destination]
	if h == nil {
		if len(s.shapes) >= shapesMax {
			s.forget(s.now())
		}
		l := s.limitsOf(destination)
		h = &shape{limits: l, allowed: l.Connections, share: l.Connections, useful: l.Connections,
			windows: map[string]*window{}}
		if l.First > 0 {
			h.useful = l.First
		}
		h.turns = fairshare.NewTurns(h.useful, reservedConnections(h.useful))
		s.shapes[destination] = h
	}
	return h
}

// setLimits takes over limits that the operator has changed. A destination that has asked for fewer connections keeps
// its lower number.
func (h *shape) setLimits(l routing.Limits) {
	if l == h.limits {
		return
	}
	if h.allowed >= h.limits.Connections || h.allowed > l.Connections {
		h.allowed = l.Connections
	}
	if h.useful = l.Connections; l.First > 0 {
		h.useful = l.First
	}
	if h.limits.Rate == 0 { // tokens are not refilled without a rate limit
		h.tokens, h.filledAt = 0, time.Time{}
	}
	h.share, h.limits = l.Connections, l
	h.turns.SetLimit(h.connections(), reservedConnections(h.connections()))
}

// refreshShare updates a destination's limits and its share of the connections, and reports to shares that the
// destination has mail. Connections to a relay are limited for each node.
func (s *shaper) refreshShare(destination string) *shape {
	h := s.entry(destination)
	h.setLimits(s.limitsOf(destination))
	if h.limits.First > 0 {
		return h
	}
	n, known := s.shares.Places(nodelimits.Key{Kind: connectionShares, Name: destination}, h.limits.Connections)
	h.unknown = !known
	h.setShare(n)
	return h
}

// demand returns two numbers: how many connections to a destination this node could use, and how many it has now.
func (s *shaper) demand(destination string) (want, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shapes[destination]
	if h == nil {
		return 0, 0
	}
	want = h.inProgress
	if want > h.share {
		want = max(want, 2*h.share)
	}
	return min(want, h.allowed), h.turns.Busy()
}

// shareChanged records this node's new share of the connections to a destination.
func (s *shaper) shareChanged(destination string, n int) {
	s.mu.Lock()
	h := s.shapes[destination]
	more := h != nil && (h.unknown || n > h.share)
	if h != nil {
		h.unknown = false
		h.setShare(n)
	}
	s.mu.Unlock()
	if more {
		s.onShareRaised(destination)
	}
}

// busy returns the destinations to which this node has connections.
func (s *shaper) busy() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for destination, h := range s.shapes {
		if h.turns.Busy() > 0 && h.limits.First == 0 {
			all = append(all, destination)
		}
	}
	return all
}

// forget deletes entries for destinations without jobs in progress: all entries that were not paused recently, and half
// of the others. If all recently paused entries were kept, the map could stay full, and each new destination would
// require a scan of the whole map.
func (s *shaper) forget(now time.Time) {
	n := 0
	for d, old := range s.shapes {
		if n++; old.inProgress == 0 && (n%2 == 0 || old.pause == 0 || now.After(old.until.Add(pauseMax))) {
			delete(s.shapes, d)
		}
	}
}

// limit returns how many jobs for a destination may be in progress. If the limit is temporary, the second result is the
// time at which the caller should call limit again.
func (s *shaper) limit(destination string, now time.Time) (n int, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.refreshShare(destination)
	switch {
	case h.limits.Paused:
		return 0, now.Add(s.held)
	case now.Before(h.until):
		return 0, h.until
	}
	if h.turns.Busy() >= max(h.connections(), 1) {
		h.fullAt = now
	}
	switch n = h.connections(); {
	case n == 0 && !h.unknown:
		return 0, now.Add(shareWait)
	case n == 0: // the share will be known by the time the message is ready
		n = 1
	case h.quick:
		n *= prefetch
	case h.share < h.allowed: // a waiting job shows that this node could use a larger share
		n++
	}
	if rate := h.limits.Rate; rate > 0 {
		s.fill(destination, h, now)
		// For the caller, claimed jobs without a slot are also in progress, but the shaper does not count them.
		if may := h.inProgress + max(int(h.tokens), 0); may < n {
			h.spentAt = now
			s.rateShare(destination, rate, rate) // reports that this node could use the full rate
			missing := 1 - (h.tokens - float64(max(int(h.tokens), 0)))
			wait := time.Duration(missing / max(h.rate, rate/1000) * float64(time.Second))
			if h.rate < rate {
				wait = min(wait, shareWait) // this node's share of the rate limit may grow
			}
			return may, now.Add(wait)
		}
	}
	return n, time.Time{}
}

// rateShare returns this node's share of the rate limit for a destination. The parameter want is the rate that this
// node could use.
func (s *shaper) rateShare(destination string, rate, want float64) float64 {
	return s.shares.Rate(nodelimits.Key{Kind: rateShares, Name: destination}, rate, want)
}

// admits reports whether a message for a destination may be sent now, although it was claimed as mail for another one.
// Otherwise, the second result is when to ask again.
func (s *shaper) admits(destination string, now time.Time) (ok bool, again time.Time) {
	n, again := s.limit(destination, now)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entry(destination).inProgress < n {
		return true, again
	}
	if again.IsZero() {
		again = now.Add(shareWait)
	}
	return false, again
}

// share returns how many of a team's jobs for a destination may be in progress, and whether those jobs are likely to
// end soon.
func (s *shaper) share(destination, team string, now time.Time) jobs.Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.entry(destination)
	if h.limits.First > 0 {
		return jobs.Share{Most: prefetch * h.limits.Connections}
	}
	f := h.windows[team]
	if f == nil {
		return jobs.Share{Most: 1, Doubt: jobs.Unknown}
	}
	if f.stalls(now, s.patience) {
		return jobs.Share{Most: 1, Doubt: jobs.Stuck}
	}
	n := f.allowed()
	if f.talking >= n {
		f.fullAt = now
	}
	if h.quick && n >= h.connections() {
		n *= prefetch
	}
	return jobs.Share{Most: n, Doubt: f.doubt(now, s.patience)}
}

// fill adds rate-limit tokens to a destination's bucket for the time since the last call. The token bucket holds as
// many tokens as are added in one second, but at least one. A new bucket is full, so that the first message does not
// wait.
func (s *shaper) fill(destination string, h *shape, now time.Time) {
	if now.Sub(h.second) >= time.Second {
		h.started, h.second = 0, now
	}
	h.rate = s.rateShare(destination, h.limits.Rate, float64(h.started))
	if h.filledAt.IsZero() {
		h.tokens += max(h.rate, 1)
	} else {
		h.tokens = min(h.tokens+now.Sub(h.filledAt).Seconds()*h.rate, max(h.rate, 1))
	}
	h.filledAt = now
}

// reservedConnections returns how many connections to a destination are reserved for teams that have none. Without
// reserved connections, one team's messages to a slow host could occupy all connections.
func reservedConnections(connections int) int {
	if connections < 4 {
		return 0 // too few connections to reserve one
	}
	return 1
}

// slot is a team's right to one conversation with a destination.
type slot struct {
	s     *shaper
	h     *shape
	team  string
	turn  string
	since time.Time
}

// acquire waits for a slot at a destination. The parameter turn identifies a queue, and the queues take turns to get
// slots. Each team has one queue for its bulk mail and another for its other mail.
func (s *shaper) acquire(ctx context.Context, destination, team, turn string) (slot, error) {
	s.mu.Lock()
	h := s.refreshShare(destination)
	h.inProgress++
	h.tokens--
	h.started++
	s.mu.Unlock()
	if err := h.turns.Acquire(ctx, turn); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.inProgress--
		return slot{}, err
	}
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.window(team).begin(now)
	s.watch(destination, h)
	return slot{s, h, team, turn, now}, nil
}

// release frees the slot and records what kind of response the host gave. If used is false, no message was sent, and
// the slot does not count against the rate limit.
func (p slot) release(used bool, what response) {
	now := p.s.now()
	p.h.turns.Release(p.turn)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.h.inProgress--
	p.h.pace.ended++
	p.h.window(p.team).end(what, now.Sub(p.since), p.s.patience, p.h.limits.Connections, now)
	if !used {
		p.h.tokens++
	}
}

// window returns the team's connection window at the destination.
func (h *shape) window(team string) *window {
	f := h.windows[team]
	if f == nil {
		if len(h.windows) >= windowsMax {
			maps.DeleteFunc(h.windows, func(_ string, old *window) bool { return old.talking == 0 })
		}
		f = &window{}
		h.windows[team] = f
	}
	return f
}

// connections returns the maximum number of connections from this node to the destination.
func (h *shape) connections() int { return min(h.allowed, h.share, h.useful) }

// setAllowed sets the estimate of how many connections the host accepts.
func (h *shape) setAllowed(n int) {
	h.allowed = n
	h.turns.SetLimit(h.connections(), reservedConnections(h.connections()))
}

// setShare sets this node's share of the connections.
func (h *shape) setShare(n int) {
	if n == h.share {
		return
	}
	h.share = n
	h.turns.SetLimit(h.connections(), reservedConnections(h.connections()))
}

// recordVerdicts records the verdicts of a conversation with a destination.
func (s *shaper) recordVerdicts(destination string, verdicts []verdict, took time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.entry(destination)
	h.quick = took < quick
	strike, hint, accepted, by := 0, time.Duration(0), false, ""
	for _, v := range verdicts {
		switch {
		case v.throttle:
			strike, hint, by = max(strike, 2), max(hint, v.hint), v.codes
		case v.soft:
			strike = max(strike, 1)
		case v.state == delivered:
			accepted = true
		}
	}
	switch {
	case strike == 0 && accepted:
		h.recover(h.limits.Connections)
	case strike > 0:
		h.strike(strike, hint, by, now)
	}
}

// recover records a successful delivery and resets the strikes. If connections were reduced, recover restores one of
// them after every two deliveries per allowed connection.
func (h *shape) recover(full int) {
	h.strikes, h.pause = 0, 0
	if h.allowed >= full {
		return
	}
	if h.deliveries++; h.deliveries >= 2*h.allowed {
		h.setAllowed(h.allowed + 1)
		h.deliveries = 0
	}
}

// strike records a temporary refusal that may be about the sender. See pauseThreshold for the weights. The parameter by
// is the codes of the answer.
func (h *shape) strike(weight int, hint time.Duration, by string, now time.Time) {
	if now.Before(h.until) {
		return // this is the answer to a message sent before the pause began
	}
	if h.strikes += weight; h.strikes < pauseThreshold && hint == 0 {
		return
	}
	n := h.allowed
	if h.share > 0 {
		n = h.connections()
	}
	h.setAllowed(max(1, n/2))
	h.deliveries = 0
	h.pause = min(max(2*h.pause, pauseMin, hint), pauseMax)
	h.pausedAt, h.pausedBy, h.until = now, by, now.Add(h.pause)
}
