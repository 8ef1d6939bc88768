// Package quota divides limits among the nodes of one database, so that all of them together keep one limit:
// connections to a destination, messages or requests a second. It knows keys and numbers, and not what they stand for.
//
// A caller asks for this node's share of a limit in memory: [Shares.Rate] and [Shares.Places] take no look at the
// database and wait for nothing. A key that is new is made known to the other nodes by an exchange that begins at once
// and takes some milliseconds; after that there is an exchange about once a second, for all keys that are in use
// together.
//
// # Invariants
//
// In the table each node has a row for each key that it uses: what it wants, and what it holds, which is the most that
// it uses until it writes otherwise. Only the node itself writes its rows. The shares follow from what all nodes want,
// by the same calculation on every node (divide): max-min fair, so a node that wants little gets that and the others
// divide the rest.
//
// A node that may use less does so at once and then writes that it holds less. A node that may use more first writes
// that it holds more, commits, and then reads what the others hold: it uses no more than they leave. Of two nodes that
// raise their shares at the same time, one at least reads what the other wrote. So the shares of places never add up to
// more than the limit, whatever each node has seen, without any lock that two nodes take. Places that are in use, such
// as connections, count as held until they are given back.
//
// Rates are exact in the long run: until the first exchanges about a key have shown who wants what, a node uses an even
// share of it.
//
// # Failure
//
// While the database is away, all shares stay as they are, and a key that is new gets an even share after some seconds:
// nothing fails because of this package. The rows of a node go with it when it leaves the nodes or is taken for dead,
// and the others divide what it had. A node that was taken for dead and lives begins anew. Between them are the seconds
// by which deaths are noticed late (see package jobs); nothing here compares clocks of nodes.
//
// # What it does not do
//
// On SQLite, and for the only node of a database, every share is the whole limit, and there are no rows and no queries.
// A node that starts beside others keeps to even shares until they have seen it, and is not seen by them for some
// milliseconds, two seconds at most. A node has a bounded number of keys in the exchange; those that find no room have
// even shares, and one place at least.
package quota

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/lograte"
)

const (
	keysMax = 2000 // of one node in the exchange
	// Times are multiples of the time between exchanges.
	idleAfter = 30 // a key that was not asked for is forgotten
	busyFor   = 2  // a key that was asked for within this time does not make room for another
	settling  = 3  // a node that starts keeps to even shares
	patience  = 5  // for the first exchange about a key; after that it has an even share
	turnTime  = 10 // that a node has one of too few places
	halfLife  = 3  // in which what was wanted once counts half
)

// Key names a limit.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Places is how a kind of limit of places is kept by those who use them. All of its functions are called without locks,
// by [Shares.Run] alone.
type Places struct {
	// Use says how many places of a name this node could use now, and how many it has. Who is at its share says that it
	// could use more than that, or it gets no more.
	Use func(name string) (want, held int)
	// Changed is called when this node's share of a name is another than before.
	Changed func(name string, n int)
	// Busy lists the names of which this node has places.
	Busy func() []string
}

// Shares are one node's. A nil *Shares gives every caller the whole limit. It is safe for concurrent use.
type Shares struct {
	d     *db.DB
	node  string
	log   *slog.Logger
	every time.Duration
	away  lograte.Limiter
	kinds map[string]Places

	live  atomic.Int32 // nodes, this one included; 0 while it is not known
	whole atomic.Bool  // this node has all limits to itself
	kick  chan struct{}

	failures atomic.Int64 // exchanges that failed

	mu      sync.Mutex
	entries map[Key]*entry
	full    time.Time // when there was last no room for a key
	settled time.Time // from then on others know of this node
	left    bool      // this node's rows are to be removed
	lost    bool      // this node's rows are gone

	// Of the exchange alone.
	written map[Key]row // this node's rows
	moves   int         // exchanges in a row after which shares were still moving
}

// entry is what this node knows of a limit.
type entry struct {
	key   Key
	whole bool // places
	limit float64
	asked bool    // since the last exchange
	want  float64 // the most since the last exchange
	share float64
	known bool // an exchange has said what the share is
	born  time.Time

	// Of the exchange alone.
	text    string
	askedAt time.Time
	recent  float64   // want, forgotten slowly
	decayed time.Time // when it was last counted less
	held    int
	target  float64 // what the last exchange said that this node may have
}

// New returns the shares of a node that is known by an id among the nodes of a database. Every is the time between
// exchanges; 0 is a second.
func New(d *db.DB, node string, log *slog.Logger, every time.Duration) *Shares {
	if every <= 0 {
		every = time.Second
	}
	s := &Shares{d: d, node: node, log: log, every: every, kinds: map[string]Places{}, kick: make(chan struct{}, 1),
		entries: map[Key]*entry{}, written: map[Key]row{}}
	s.whole.Store(d.Alone())
	return s
}

// Keep says how places of a kind are kept. It is called before Run.
func (s *Shares) Keep(kind string, p Places) {
	if s != nil {
		s.kinds[kind] = p
	}
}

// Live says how many nodes there are, this one included. 0 says that others took this one for dead, and divided what it
// had among them.
func (s *Shares) Live(n int) {
	if s == nil || s.d.Alone() {
		return
	}
	before := s.live.Load()
	if n > 0 {
		s.live.Store(int32(n))
	}
	s.mu.Lock()
	switch {
	case n == 0:
		s.lost, s.settled = true, time.Now().Add(settling*s.every)
		for _, e := range s.entries {
			e.known, e.share, e.target, e.born = false, 0, 0, time.Now()
		}
	case n > 1 && before == 0:
		s.settled = time.Now().Add(settling * s.every)
	case n == 1:
		s.left = true
	}
	s.mu.Unlock()
	s.whole.Store(n == 1)
	if before == 1 && n > 1 {
		s.enterBusy()
	}
	s.wake()
}

// enterBusy enters the keys of which this node had places while it was alone.
func (s *Shares) enterBusy() {
	for kind, p := range s.kinds {
		for _, name := range p.Busy() {
			if want, held := p.Use(name); held > 0 {
				s.Places(Key{kind, name}, max(want, held))
			}
		}
	}
}

// Rate returns how much of a rate this node may use now, when it could use want. Of a limit of 0, which is none, it
// returns 0.
func (s *Shares) Rate(key Key, limit, want float64) float64 {
	if s == nil || s.whole.Load() || limit <= 0 {
		return limit
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(key, limit, false)
	if e == nil {
		return s.even(limit)
	}
	e.want = max(e.want, want)
	if !e.known {
		return s.even(limit)
	}
	return min(e.share, limit)
}

// Places returns how many of a number of places this node may use now. It is not known at first, for some milliseconds;
// then the kind's Changed is called.
func (s *Shares) Places(key Key, limit int) (n int, known bool) {
	if s == nil || s.whole.Load() {
		return limit, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.of(key, float64(limit), true)
	switch {
	case e == nil, s.late(e):
		return int(s.evenPlaces(float64(limit))), true
	case !e.known:
		return 0, false
	}
	return min(int(e.share), limit), true
}

// of returns what is known of a key that is asked for, a new entry if nothing is, and nil if there is no room for one.
func (s *Shares) of(key Key, limit float64, whole bool) *entry {
	e := s.entries[key]
	if e == nil {
		if len(s.entries) >= keysMax {
			s.full = time.Now()
			s.wake()
			return nil
		}
		now := time.Now()
		e = &entry{key: key, whole: whole, born: now, askedAt: now, decayed: now, text: key.String()}
		s.entries[key] = e
		s.wake()
	}
	e.asked, e.limit = true, limit
	return e
}

// even is an even share of a limit.
func (s *Shares) even(limit float64) float64 { return limit / float64(max(s.live.Load(), 1)) }

// evenPlaces is an even share of places, one at least.
func (s *Shares) evenPlaces(limit float64) float64 { return max(math.Floor(s.even(limit)), 1) }

// late reports whether the exchange about a key takes so long that it is not waited for.
func (s *Shares) late(e *entry) bool { return !e.known && time.Since(e.born) > patience*s.every }

func (s *Shares) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// headroom is what a node is said to want of a rate of which it used some: a bit more, so that it shows whether it
// could use more.
func headroom(used, limit float64) float64 {
	if used <= 0 {
		return 0
	}
	return min(used*1.25+limit/20, limit)
}
