package delivery

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/fair"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/quota"
)

const (
	pauseMin = 30 * time.Second
	pauseMax = 15 * time.Minute
	// troubled is how much a host must put off, one after the other, before its lane is paused. What it puts off for our
	// sake counts twice; one message that it is unsure of is no sign of anything.
	troubled   = 3
	shapesKept = 50_000
	flowsKept  = 1000 // of one destination
	// quick is how fast a destination must be for jobs to be kept in hand for it beyond its connections.
	quick = 200 * time.Millisecond
	// shareWait is when jobs ask again for a destination to which other nodes have all connections.
	shareWait = time.Second
)

// Kinds of limits that the nodes keep together.
const (
	connectionShares = "connections" // to a destination
	rateShares       = "rate"        // to a destination
	addressShares    = "address"     // connections to an address
)

// shaper says how many connections a destination gets, and how fast. A host that asks for less gets half as many and a
// pause that grows; what it takes afterwards gives them back, slowly. Of the limits that the nodes keep together it
// gives this node's share.
type shaper struct {
	connections int
	rate        float64       // messages a second; 0 is no limit
	shares      *quota.Shares // nil when this node has the limits to itself
	grown       func(destination string)
	patience    time.Duration // stallAfter

	mu     sync.Mutex
	shapes map[string]*shape
}

// shape is one destination's.
type shape struct {
	allowed int         // connections that the host has room for, as far as this node knows
	share   int         // connections that this node may have
	unknown bool        // the share will be known soon
	places  *fair.Turns // the fewer of both, shared by teams
	entered int         // jobs that have a place or wait for one

	flows map[string]*flow // by team

	quick    bool // the last conversation was
	strikes  int  // in a row
	pause    time.Duration
	until    time.Time // of the pause
	taken    int       // messages since a connection was last given back
	rate     float64   // this node's share of it
	tokens   float64   // of the rate
	filledAt time.Time
	begun    int       // messages in this second
	second   time.Time // when it began
}

func newShaper(connections int, rate float64) *shaper {
	return &shaper{connections: connections, rate: rate, patience: stallAfter, shapes: map[string]*shape{}}
}

// keepTo has this node keep to its shares of the limits. It is called before anything else. grown is called when the
// share of a destination is larger than before.
func (s *shaper) keepTo(shares *quota.Shares, grown func(destination string)) {
	s.shares, s.grown = shares, grown
	shares.Keep(connectionShares, quota.Places{Use: s.use, Changed: s.changed, Busy: s.busy})
}

func (s *shaper) of(destination string) *shape {
	h := s.shapes[destination]
	if h == nil {
		if len(s.shapes) >= shapesKept {
			s.forget(time.Now())
		}
		h = &shape{allowed: s.connections, share: s.connections, places: fair.NewTurns(s.connections, kept(s.connections)),
			flows: map[string]*flow{}}
		s.shapes[destination] = h
	}
	return h
}

// ask brings a destination's share of the connections up to date, and says that mail for it is there.
func (s *shaper) ask(destination string) *shape {
	h := s.of(destination)
	n, known := s.shares.Places(quota.Key{Kind: connectionShares, Name: destination}, s.connections)
	h.unknown = !known
	h.divide(n)
	return h
}

// use says how many connections to a destination this node could use, and how many there are.
func (s *shaper) use(destination string) (want, held int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shapes[destination]
	if h == nil {
		return 0, 0
	}
	want = h.entered
	if want > h.share {
		want = max(want, 2*h.share)
	}
	return min(want, h.allowed), h.places.Busy()
}

// changed takes in that this node's share of the connections to a destination is another.
func (s *shaper) changed(destination string, n int) {
	s.mu.Lock()
	h := s.shapes[destination]
	more := h != nil && (h.unknown || n > h.share)
	if h != nil {
		h.unknown = false
		h.divide(n)
	}
	s.mu.Unlock()
	if more {
		s.grown(destination)
	}
}

// busy lists the destinations to which there are connections.
func (s *shaper) busy() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for destination, h := range s.shapes {
		if h.places.Busy() > 0 {
			all = append(all, destination)
		}
	}
	return all
}

// forget drops what is known of destinations that are not busy: all that is of no use any more, and every other of the
// rest, or there would be no bound, and each new destination would cost a walk over all.
func (s *shaper) forget(now time.Time) {
	n := 0
	for d, old := range s.shapes {
		if n++; old.entered == 0 && (n%2 == 0 || old.pause == 0 || now.After(old.until.Add(pauseMax))) {
			delete(s.shapes, d)
		}
	}
}

// limit says how many jobs of a destination may be in hand, and when to ask again if that is for a time.
func (s *shaper) limit(destination string, now time.Time) (n int, again time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.ask(destination)
	if now.Before(h.until) {
		return 0, h.until
	}
	switch n = h.connections(); {
	case n == 0 && !h.unknown:
		return 0, now.Add(shareWait)
	case n == 0: // its share will be known before the message is ready
		n = 1
	case h.quick:
		n *= ahead
	case h.share < h.allowed: // one that waits shows that this node could use more
		n++
	}
	if s.rate > 0 {
		s.fill(destination, h, now)
		// Jobs that are claimed and have not entered are not known here; the caller counts them as in hand.
		if may := h.entered + max(int(h.tokens), 0); may < n {
			s.rateShare(destination, s.rate) // it could use all of it
			missing := 1 - (h.tokens - float64(max(int(h.tokens), 0)))
			wait := time.Duration(missing / max(h.rate, s.rate/1000) * float64(time.Second))
			if h.rate < s.rate {
				wait = min(wait, shareWait) // the share may grow
			}
			return may, now.Add(wait)
		}
	}
	return n, time.Time{}
}

// rateShare returns this node's share of the rate to a destination, when it could use want.
func (s *shaper) rateShare(destination string, want float64) float64 {
	return s.shares.Rate(quota.Key{Kind: rateShares, Name: destination}, s.rate, want)
}

// share says how many jobs of a team for a destination may be in hand, and whether they come to an end soon.
func (s *shaper) share(destination, team string, now time.Time) jobs.Share {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of(destination)
	f := h.flows[team]
	if f == nil {
		return jobs.Share{Most: 1, Doubt: jobs.Unknown}
	}
	if f.stalls(now, s.patience) {
		return jobs.Share{Most: 1, Doubt: jobs.Stuck}
	}
	n := f.places()
	if h.quick && n >= h.connections() {
		n *= ahead
	}
	return jobs.Share{Most: n, Doubt: f.doubt(now, s.patience)}
}

// fill adds the tokens that the rate has brought since the last time; at most those of a second, which is what there is
// at first. There may be one in any case: the first message does not wait.
func (s *shaper) fill(destination string, h *shape, now time.Time) {
	if now.Sub(h.second) >= time.Second {
		h.begun, h.second = 0, now
	}
	h.rate = s.rateShare(destination, float64(h.begun))
	if h.filledAt.IsZero() {
		h.tokens += max(h.rate, 1)
	} else {
		h.tokens = min(h.tokens+now.Sub(h.filledAt).Seconds()*h.rate, max(h.rate, 1))
	}
	h.filledAt = now
}

// kept is how many of a destination's connections are kept for whoever has none: the messages of others may stall there,
// each for as long as the host likes.
func kept(connections int) int {
	if connections < 4 {
		return 0 // it would cost too much
	}
	return 1
}

// place is a team's place at a destination.
type place struct {
	s     *shaper
	h     *shape
	team  string
	turn  string
	since time.Time
}

// enter waits for a connection's place. Teams have turns, and so have the bulk mail of a team and the rest of it, which
// turn tells apart.
func (s *shaper) enter(ctx context.Context, destination, team, turn string) (place, error) {
	s.mu.Lock()
	h := s.ask(destination)
	h.entered++
	h.tokens--
	h.begun++
	s.mu.Unlock()
	if err := h.places.Enter(ctx, turn); err != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.entered--
		return place{}, err
	}
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	h.flow(team).begin(now)
	return place{s, h, team, turn, now}, nil
}

// leave gives the place back, and says what was heard. used says whether a message came out of it: otherwise it does
// not count against the rate.
func (p place) leave(used bool, what hearing) {
	now := time.Now()
	p.h.places.Leave(p.turn)
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.h.entered--
	p.h.flow(p.team).end(what, now.Sub(p.since), p.s.patience, p.s.connections, now)
	if !used {
		p.h.tokens++
	}
}

// flow returns how a team's mail gets on with the destination.
func (h *shape) flow(team string) *flow {
	f := h.flows[team]
	if f == nil {
		if len(h.flows) >= flowsKept {
			maps.DeleteFunc(h.flows, func(_ string, old *flow) bool { return old.talking == 0 })
		}
		f = &flow{}
		h.flows[team] = f
	}
	return f
}

// connections is how many there may be.
func (h *shape) connections() int { return min(h.allowed, h.share) }

// allow changes how many connections the host has room for.
func (h *shape) allow(n int) {
	h.allowed = n
	h.places.SetLimit(h.connections(), kept(h.connections()))
}

// divide changes how many connections this node may have.
func (h *shape) divide(n int) {
	if n == h.share {
		return
	}
	h.share = n
	h.places.SetLimit(h.connections(), kept(h.connections()))
}

// heard takes in how a destination answered.
func (s *shaper) heard(destination string, verdicts []verdict, took time.Duration, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.of(destination)
	h.quick = took < quick
	strike, hint, took1 := 0, time.Duration(0), false
	for _, v := range verdicts {
		switch {
		case v.throttle:
			strike, hint = max(strike, 2), max(hint, v.hint)
		case v.soft:
			strike = max(strike, 1)
		case v.state == delivered:
			took1 = true
		}
	}
	switch {
	case strike == 0 && took1:
		h.recover(s.connections)
	case strike > 0:
		h.strike(strike, hint, now)
	}
}

// recover takes in a message that the host took: the pause is forgotten at once, and a connection comes back for each
// round of messages over those that are left.
func (h *shape) recover(full int) {
	h.strikes, h.pause = 0, 0
	if h.allowed >= full {
		return
	}
	if h.taken++; h.taken >= 2*h.allowed {
		h.allow(h.allowed + 1)
		h.taken = 0
	}
}

// strike takes in that the host put a message off for our sake, or for one of its own.
func (h *shape) strike(weight int, hint time.Duration, now time.Time) {
	if now.Before(h.until) {
		return // an answer to what was under way when the pause began
	}
	if h.strikes += weight; h.strikes < troubled && hint == 0 {
		return
	}
	n := h.allowed
	if h.share > 0 {
		n = h.connections()
	}
	h.allow(max(1, n/2))
	h.taken = 0
	h.pause = min(max(2*h.pause, pauseMin, hint), pauseMax)
	h.until = now.Add(h.pause)
}
