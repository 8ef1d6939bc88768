// Package nodelimits divides limits among the nodes that use one database, so that all nodes together stay within each
// limit. Examples are limits on connections to a destination, or on messages or requests per second. The package does
// not interpret the keys that name limits.
//
// Callers read this node's share of a limit from memory: [Shares.Rate] and [Shares.Places] do not query the database
// and do not wait. The first use of a key immediately starts an exchange with the other nodes, which takes a few
// milliseconds. After this first exchange, an exchange about once per second covers all keys in use.
//
// # Invariants
//
// In a database table, each node has a row for each key that it uses. The row contains how much the node wants and how
// much it holds. A node never uses more than the amount that its row lists as held. Only the node itself writes its
// rows. Every node computes the shares with the same function (divide) from the demands of all nodes. The shares are
// max-min fair: a node that wants little gets the amount that it wants, and the other nodes divide the remainder.
//
// If a node's share shrinks, the node first uses less, and then writes that it holds less. If a node's share grows, the
// node first writes that it holds more, commits, and then reads how much the other nodes hold. The node uses at most
// the part of the limit that the other nodes do not hold. If two nodes raise their shares at the same time, at least
// one of them reads the row that the other wrote. Because a node writes its row before it reads other rows, nodes need
// no lock. The shares of a slot limit never exceed the limit in total, as long as the nodes can exchange and have a row
// for the key. Slots in use, such as connections, count as held until they are released.
//
// A key's limit may be exceeded while a node has too many other keys to add this key. For a key that it cannot add, a
// node uses an even share (at least one slot) but writes no row. Because of the missing row, the other nodes divide the
// whole limit. The excess is at most an even share for each node that has too many keys. When other keys of the same
// kind become unused, the node adds the key within seconds.
//
// Rate limits are exact only as a long-term average. Each node uses an even share until the first exchanges about a key
// have shown how much each node wants.
//
// # Failures
//
// While the database is unavailable, all shares stay unchanged, and a new key gets an even share (slot limits only
// after a few seconds). Calls to Rate and Places do not fail if the database is unavailable. A node's rows are deleted
// when the node stops or is declared dead, and the other nodes divide its shares. A live node that was declared dead
// starts again without shares. If such a node is slow to notice, the limit may be exceeded for a few seconds (see
// package jobs). The clocks of different nodes are never compared.
//
// # Special cases
//
// On SQLite, and for the only node on a database, every share is the whole limit. A single node writes no rows and
// makes no queries, except to delete its rows when it becomes the only node. A node that joins other nodes uses even
// shares until the other nodes know it. This usually takes a few milliseconds, and at most two seconds. A node
// exchanges at most 2,500 keys of each kind, so that exchanges stay short.
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
	keysMax = 2500 // maximum number of keys of one kind that a node exchanges
	// The following times are multiples of the time between exchanges.
	idleAfter = 30 // a key that has not been used for this long is removed
	busyFor   = 2  // replaces idleAfter if the kind has keysMax keys
	settling  = 3  // a node uses even shares for this long after its start
	patience  = 5  // maximum wait for the first exchange about a key; then its slots are shared evenly
	turnTime  = 10 // how long a node keeps a slot if there are fewer slots than nodes
	halfLife  = 3  // time in which the weight of an earlier demand halves
)

// Key is the name of a limit.
type Key struct{ Kind, Name string }

func (k Key) String() string { return k.Kind + "/" + k.Name }

// Places are the callbacks for one kind of slot, such as connections. [Shares.Run] and [Shares.Live] call these
// functions without holding locks.
type Places struct {
	// Limit returns the limit for a name, which applies to all nodes together.
	Limit func(name string) int
	// Use returns how many of a name's slots this node could use now, and how many it holds. If the node's whole share
	// is in use, want must exceed the share, because otherwise the share does not grow.
	Use func(name string) (want, held int)
	// Changed is called after this node's share for a name has changed.
	Changed func(name string, n int)
	// Busy returns the names for which this node uses slots.
	Busy func() []string
}

// Shares holds the shares of one node. With a nil *Shares, every caller gets the whole limit. Shares is safe for
// concurrent use.
type Shares struct {
	d     *db.DB
	node  string
	log   *slog.Logger
	every time.Duration
	wait  time.Duration // maximum wait for the first exchange about a key
	away  lograte.Limiter
	kinds map[string]Places

	live  atomic.Int32 // number of nodes, including this node; 0 while unknown
	whole atomic.Bool  // whether this node is the only one, so that its shares are the full limits
	kick  chan struct{}

	failures atomic.Int64 // number of failed exchanges

	mu      sync.Mutex
	entries map[Key]*entry
	counts  map[string]*keyCount // number of keys by kind
	settled time.Time            // time by which the other nodes are certain to know this node
	left    bool                 // whether this node's rows must be deleted
	lost    bool                 // whether other nodes have deleted this node's rows

	// Only the exchange method uses these fields.
	written map[Key]row // this node's rows
	moves   int         // number of consecutive exchanges after which shares had not settled
}

// keyCount is the number of keys of a kind. Each kind has a separate limit on its keys, so that the keys for many mail
// destinations do not displace the keys for request rates.
type keyCount struct {
	keys int
	full time.Time // time at which a key was last refused because of keysMax
}

// entry is the state of a limit on this node.
type entry struct {
	key   Key
	whole bool // whether the limit is a number of slots
	limit float64
	asked bool    // whether the limit was used since the last exchange
	want  float64 // highest demand since the last exchange
	share float64
	known bool // whether share is the result of an exchange
	born  time.Time

	// Only the exchange method uses these fields.
	text    string
	askedAt time.Time
	recent  float64   // earlier values of want, which decay slowly
	decayed time.Time // time at which the recent field was last reduced
	held    int
	target  float64 // this node's share according to the last exchange
}

// New returns the shares for the node with the given id. The every parameter is the time between exchanges; 0 means one
// second.
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

// Register sets the callbacks for a kind of slot. Call Register before Run.
func (s *Shares) Register(kind string, p Places) {
	if s != nil {
		s.kinds[kind] = p
	}
}

// Live sets the number of nodes, including this node. A number of 0 means that other nodes declared this node dead and
// divided its shares.
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
	case n == 1 && before != 1: // a node that stays alone writes no rows
		s.left = true
	}
	s.mu.Unlock()
	s.whole.Store(n == 1)
	if before == 1 && n > 1 {
		s.addBusy()
	}
	s.wake()
}

// addBusy adds entries for the keys for which this node acquired slots while it was alone.
func (s *Shares) addBusy() {
	for kind, p := range s.kinds {
		for _, name := range p.Busy() {
			if _, held := p.Use(name); held > 0 {
				s.Places(Key{kind, name}, p.Limit(name))
			}
		}
	}
}

// Rate returns this node's share of a rate limit, and records want as the rate that the node could use. A limit of 0
// means no limit, and Rate returns 0.
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

// Places returns how many slots this node may use now. The limit parameter is the number of slots for all nodes
// together. The share for a new key is unknown for a few milliseconds; the kind's Changed callback is called once the
// share is known.
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

// of returns a key's entry, and adds the entry if it is missing. If the kind already has keysMax keys, of returns nil
// for a new key.
func (s *Shares) of(key Key, limit float64, whole bool) *entry {
	e := s.entries[key]
	if e == nil {
		now, r := time.Now(), s.counts[key.Kind]
		if r == nil {
			r = &keyCount{}
			s.counts[key.Kind] = r
		}
		if r.keys >= keysMax { // only regular exchanges remove keys, so a refused key must not start one
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

// evenPlaces returns an even share of slots, but at least one slot.
func (s *Shares) evenPlaces(limit float64) float64 { return max(math.Floor(s.even(limit)), 1) }

// late reports whether the first exchange about a key has taken longer than s.wait.
func (s *Shares) late(e *entry) bool { return !e.known && time.Since(e.born) > s.wait }

func (s *Shares) wake() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// headroom returns the demand that a node writes for a rate: slightly more than the node used, so that other nodes can
// see growing use.
func headroom(used, limit float64) float64 {
	if used <= 0 {
		return 0
	}
	return min(used*1.25+limit/20, limit)
}
