// Package nodelimits divides limits among the nodes of one database, so that all nodes together respect a limit, such
// as connections to a destination, or messages or requests a second. The package handles keys and numbers and does not
// interpret them.
//
// Callers read this node's share of a limit from memory: [Shares.Rate] and [Shares.Places] neither query the database
// nor wait. A new key starts an exchange with the other nodes immediately, which takes some milliseconds. After that,
// one exchange about every second covers all keys in use.
//
// # Invariants
//
// Each node has a row in the table for each key that it uses. The row states how much the node wants and how much it
// holds, which is the most that it uses until it writes another value. Only the node itself writes its rows. Every node
// computes the shares by the same function (divide) from the wants of all nodes. The shares are max-min fair: a node
// that wants little gets what it wants, and the others divide the rest.
//
// A node whose share shrinks uses less immediately, and then writes that it holds less. A node whose share grows first
// writes that it holds more, commits, and then reads what the others hold. The node uses no more than the others leave.
// If two nodes raise their shares at the same time, at least one reads what the other wrote. No lock between nodes is
// needed: shares of places never exceed the limit in total, as long as the nodes can exchange and have a row for the
// key. Places in use, such as connections, count as held until they are released.
//
// The limit of a key may be exceeded while a node has too many other keys to add this key. A node with too many keys
// uses an even share, at least one place, but writes no row, and the others divide the whole limit. The excess is at
// most an even share for each node that has too many keys. When other keys of the kind become unused, the node adds the
// key within seconds.
//
// Rates are exact only in the long run. Until the first exchanges about a key have shown what each node wants, a node
// uses an even share.
//
// # When it fails
//
// While the database is unavailable, all shares stay unchanged, and a new key gets an even share, for places after some
// seconds. An unavailable database makes no call fail. A node's rows are deleted when it stops or is declared dead, and
// the others divide its shares. A node that was declared dead but is alive starts again with no shares. If it notices
// late, the limit may be exceeded for some seconds (see package jobs). Clocks of nodes are not compared.
//
// # Special cases
//
// On SQLite, and for the only node of a database, every share is the whole limit. Such a node writes no rows and makes
// no queries, except one that deletes its rows when it becomes the only node. A node that starts next to others uses
// even shares until they have noticed it, which takes some milliseconds and at most two seconds. A node exchanges at
// most 2,500 keys of each kind, so that exchanges stay short.
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
	keysMax = 2500 // the most keys of one kind that a node exchanges
	// Times are multiples of the time between exchanges.
	idleAfter = 30 // a key unused for this time is dropped
	busyFor   = 2  // if the kind has keysMax keys: a key used within this time is kept
	settling  = 3  // a node uses even shares for this time after its start
	patience  = 5  // wait for the first exchange about a key; without one, places are shared evenly
	turnTime  = 10 // how long a node keeps a place if there are fewer places than nodes
	halfLife  = 3  // time in which the weight of an earlier demand halves
)

// Key names a limit.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Places are functions through which the users of a kind of places report and adjust their use. [Shares.Run] and
// [Shares.Live] call them without holding locks.
type Places struct {
	// Limit returns the limit of a name, for all nodes together.
	Limit func(name string) int
	// Use returns how many places of a name this node could use now, and how many it has. If its whole share is in use,
	// want must exceed the share, or the share does not grow.
	Use func(name string) (want, held int)
	// Changed is called after this node's share of a name has changed.
	Changed func(name string, n int)
	// Busy returns the names of which this node uses places.
	Busy func() []string
}

// Shares are the shares of one node. A nil *Shares gives every caller the whole limit. Shares is safe for concurrent
// use.
type Shares struct {
	d     *db.DB
	node  string
	log   *slog.Logger
	every time.Duration
	wait  time.Duration // longest wait for the first exchange about a key
	away  lograte.Limiter
	kinds map[string]Places

	live  atomic.Int32 // number of nodes, including this one; 0 while unknown
	whole atomic.Bool  // this node is the only one and has all limits
	kick  chan struct{}

	failures atomic.Int64 // exchanges that failed

	mu      sync.Mutex
	entries map[Key]*entry
	counts  map[string]*keyCount // by kind
	settled time.Time            // from this time on, the other nodes certainly know this node
	left    bool                 // this node's rows must be deleted
	lost    bool                 // this node's rows have been deleted by others

	// Only the exchange uses these fields.
	written map[Key]row // this node's rows
	moves   int         // exchanges in a row after which shares had not settled
}

// keyCount is the number of keys of a kind. Each kind has a separate limit, so that mail to many destinations does not
// displace the limits of requests.
type keyCount struct {
	keys int
	full time.Time // time at which a key was last refused because of keysMax
}

// entry is the state of a limit on this node.
type entry struct {
	key   Key
	whole bool // places
	limit float64
	asked bool    // since the last exchange
	want  float64 // the highest want since the last exchange
	share float64
	known bool // share comes from an exchange
	born  time.Time

	// Only the exchange uses these fields.
	text    string
	askedAt time.Time
	recent  float64   // want, decaying slowly
	decayed time.Time // time at which recent was last reduced
	held    int
	target  float64 // this node's share according to the last exchange
}

// New returns the shares of the node with the given id. every is the time between exchanges; 0 is a second.
func New(d *db.DB, node string, log *slog.Logger, every time.Duration) *Shares {
	if every <= 0 {
		every = time.Second
	}
	s := &Shares{d: d, node: node, log: log, every: every, wait: patience * every, kinds: map[string]Places{},
		kick:    make(chan struct{}, 1),
		entries: map[Key]*entry{}, counts: map[string]*keyCount{}, written: map[Key]row{}}
	s.whole.Store(d.Alone())
	return s
}

// Register sets the functions for a kind of places. Call it before Run.
func (s *Shares) Register(kind string, p Places) {
	if s != nil {
		s.kinds[kind] = p
	}
}

// Live sets the number of nodes, this one included. 0 means that other nodes declared this one dead and divided its
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
	case n == 1 && before != 1: // while it stays alone, it writes no rows
		s.left = true
	}
	s.mu.Unlock()
	s.whole.Store(n == 1)
	if before == 1 && n > 1 {
		s.addBusy()
	}
	s.wake()
}

// addBusy adds entries for the keys of which this node acquired places while it was alone.
func (s *Shares) addBusy() {
	for kind, p := range s.kinds {
		for _, name := range p.Busy() {
			if _, held := p.Use(name); held > 0 {
				s.Places(Key{kind, name}, p.Limit(name))
			}
		}
	}
}

// Rate returns this node's share of a rate, and records that it could use want. A limit of 0 means no limit, and Rate
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

// Places returns how many of limit places this node may use now. The share of a new key is unknown for some
// milliseconds; the kind's Changed is called once it is known.
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

// of returns the entry of a key, and adds it if it is missing. It returns nil if the kind already has keysMax keys.
func (s *Shares) of(key Key, limit float64, whole bool) *entry {
	e := s.entries[key]
	if e == nil {
		now, r := time.Now(), s.counts[key.Kind]
		if r == nil {
			r = &keyCount{}
			s.counts[key.Kind] = r
		}
		if r.keys >= keysMax { // only the next regular exchange drops keys; an exchange for each refused key would never end
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

// even returns an even share of a limit.
func (s *Shares) even(limit float64) float64 { return limit / float64(max(s.live.Load(), 1)) }

// evenPlaces returns an even share of places, at least one.
func (s *Shares) evenPlaces(limit float64) float64 { return max(math.Floor(s.even(limit)), 1) }

// late reports whether the first exchange about a key takes too long to wait for it.
func (s *Shares) late(e *entry) bool { return !e.known && time.Since(e.born) > s.wait }

func (s *Shares) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// headroom returns the want that a node writes for a rate: somewhat more than it used, so that growing use is visible.
func headroom(used, limit float64) float64 {
	if used <= 0 {
		return 0
	}
	return min(used*1.25+limit/20, limit)
}
