// Package nodelimits divides limits among the nodes of one database, so that all nodes together keep a limit:
// connections to a destination, messages or requests a second. It handles keys and numbers, and does not know what
// they stand for.
//
// Callers read this node's share of a limit from memory: [Shares.Rate] and [Shares.Places] neither query the database
// nor wait. An exchange writes a new key for the other nodes at once, which takes some milliseconds; after that there
// is one exchange about every second for all keys in use.
//
// # Invariants
//
// In the table each node has a row for each key that it uses: what it wants, and what it holds, which is the most
// that it uses until it writes another value. Only the node itself writes its rows. Every node computes the shares by
// the same function (divide) from what all nodes want: they are max-min fair, so a node that wants little gets that,
// and the others divide the rest.
//
// A node whose share shrinks uses less at once and then writes that it holds less. A node whose share grows first
// writes that it holds more, commits, and then reads what the others hold: it uses no more than they leave. Of two
// nodes that raise their shares at the same time, at least one reads what the other wrote. So the shares of places
// never add up to more than the limit, without a lock between nodes, among nodes that can exchange and have room for
// the key. Places in use, such as connections, count as held until they are released.
//
// The limit of a key is not kept while a node has no room for the key. Such a node uses an even share, at least one
// place, but writes nothing, and the others divide the whole limit: together they may exceed it by an even share for
// each node without room. When other keys of the kind are no longer used, the key finds room within seconds.
//
// Rates are exact only in the long run: until the first exchanges about a key have shown what each node wants, a node
// uses an even share of it.
//
// # When it fails
//
// While the database is not available, all shares stay as they are, and a new key gets an even share, for places
// after some seconds; no call fails because of it. A node's rows are deleted when it leaves the nodes or is taken for
// dead, and the others divide its shares. A node that was taken for dead but is alive starts again with no shares. If
// it does not notice at once, the limit may be exceeded for some seconds (see package jobs); clocks of nodes are not
// compared.
//
// # Special cases
//
// On SQLite, and for the only node of a database, every share is the whole limit, and there are no rows and no
// queries, except one that deletes the node's rows when it becomes the only one. A node that starts beside others uses
// even shares until they have noticed it, which takes them some milliseconds, two seconds at most. A node has at most
// 2,500 keys of each kind in the exchange, so that it stays short.
package nodelimits

import (
	"log/slog"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/lograte"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	keysMax = 2500 // the most keys of one kind that a node has in the exchange
	// Times are multiples of the time between exchanges.
	idleAfter = 30 // a key that was not used for this time is dropped
	busyFor   = 2  // when there is no room: a key that was used within this time is kept
	settling  = 3  // a node that starts uses even shares
	patience  = 5  // for the first exchange about a key; then places are shared evenly
	turnTime  = 10 // how long a node has one of too few places
	halfLife  = 3  // in which the weight of an earlier demand halves
)

// Key names a limit.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Places is how the users of a kind of places report and adjust them. [Shares.Run] and [Shares.Live] call its
// functions, without holding locks.
type Places struct {
	// Limit returns the limit of a name, for all nodes together.
	Limit func(name string) int
	// Use returns how many places of a name this node could use now, and how many it has. When all of its share is in
	// use, want must exceed the share if it is to grow.
	Use func(name string) (want, held int)
	// Changed is called when this node's share of a name has changed.
	Changed func(name string, n int)
	// Busy returns the names of which this node has places.
	Busy func() []string
}

// Shares are the shares of one node. A nil *Shares gives every caller the whole limit. It is safe for concurrent use.
type Shares struct {
	d     *db.DB
	node  string
	log   *slog.Logger
	every time.Duration
	wait  time.Duration // for the first exchange about a key
	away  lograte.Limiter
	kinds map[string]Places

	live  atomic.Int32 // number of nodes, with this one; 0 while unknown
	whole atomic.Bool  // this node is the only one and has all limits
	kick  chan struct{}

	failures atomic.Int64 // exchanges that failed

	mu      sync.Mutex
	entries map[Key]*entry
	counts  map[string]*keyCount // by kind
	settled time.Time            // when the other nodes surely know of this one
	left    bool                 // this node's rows must be deleted
	lost    bool                 // this node's rows have been deleted by others

	// Of the exchange alone.
	written map[Key]row // this node's rows
	moves   int         // exchanges in a row after which shares had not settled
}

// keyCount is the number of keys of a kind. Each kind has a separate limit, so that mail to many destinations does not
// displace the limits of requests.
type keyCount struct {
	keys int
	full time.Time // when a key last found no room
}

// entry is the state of a limit on this node.
type entry struct {
	key   Key
	whole bool // places
	limit float64
	asked bool    // since the last exchange
	want  float64 // the highest since the last exchange
	share float64
	known bool // share comes from an exchange
	born  time.Time

	// Of the exchange alone.
	text    string
	askedAt time.Time
	recent  float64   // want, decaying slowly
	decayed time.Time // when recent last decayed
	held    int
	target  float64 // what this node may have by the last exchange
}

// New returns the shares of the node with that id. Every is the time between exchanges; 0 is a second.
func New(d *db.DB, node string, log *slog.Logger, every time.Duration) *Shares {
	if every <= 0 {
		every = time.Second
	}
	s := &Shares{d: d, node: node, log: log, every: every, wait: patience * every, kinds: map[string]Places{}, kick: make(chan struct{}, 1),
		entries: map[Key]*entry{}, counts: map[string]*keyCount{}, written: map[Key]row{}}
	s.whole.Store(d.Alone())
	return s
}

// Keep registers the functions for a kind of places. Call it before Run.
func (s *Shares) Keep(kind string, p Places) {
	if s != nil {
		s.kinds[kind] = p
	}
}

// Live sets the number of nodes, this one included. 0 means that others took this node for dead and divided its
// shares.
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
	case n == 1 && before != 1: // while it stays alone, it writes none
		s.left = true
	}
	s.mu.Unlock()
	s.whole.Store(n == 1)
	if before == 1 && n > 1 {
		s.addBusy()
	}
	s.wake()
}

// addBusy adds entries for the keys of which this node got places while it was alone.
func (s *Shares) addBusy() {
	for kind, p := range s.kinds {
		for _, name := range p.Busy() {
			if _, held := p.Use(name); held > 0 {
				s.Places(Key{kind, name}, p.Limit(name))
			}
		}
	}
}

// Rate returns how much of a rate this node may use now, and records that it could use want. A limit of 0 means no
// limit, and Rate returns 0.
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

// Places returns how many of limit places this node may use now. The share of a new key is not known for some
// milliseconds; the kind's Changed is called once it is.
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

// of returns the entry of a key, adding it when there is none. It returns nil when there is no room for one.
func (s *Shares) of(key Key, limit float64, whole bool) *entry {
	e := s.entries[key]
	if e == nil {
		now, r := time.Now(), s.counts[key.Kind]
		if r == nil {
			r = &keyCount{}
			s.counts[key.Kind] = r
		}
		if r.keys >= keysMax { // the next regular exchange makes room; one for each such key would never rest
			r.full = now
			return nil
		}
		r.keys++
		e = &entry{key: key, whole: whole, born: now, askedAt: now, decayed: now, text: key.String()}
		s.entries[key] = e
		s.wake()
	}
	e.asked, e.limit = true, limit
	return e
}

// even is an even share of a limit.
func (s *Shares) even(limit float64) float64 { return limit / float64(max(s.live.Load(), 1)) }

// evenPlaces is an even share of places, at least one.
func (s *Shares) evenPlaces(limit float64) float64 { return max(math.Floor(s.even(limit)), 1) }

// late reports whether the first exchange about a key has taken too long to wait for it.
func (s *Shares) late(e *entry) bool { return !e.known && time.Since(e.born) > s.wait }

func (s *Shares) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// headroom is what a node writes as wanted of a rate of which it used some: somewhat more, so that growing use is
// seen.
func headroom(used, limit float64) float64 {
	if used <= 0 {
		return 0
	}
	return min(used*1.25+limit/20, limit)
}
