package nameserver

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"sync"
	"time"
)

// kind is a class of answers for the rate limit.
type kind byte

const (
	kindAnswer kind = iota
	kindNoData
	kindNoName
	kindError
	kindAll // all answers to a client network together
)

// class identifies the responses that one counter counts: answers with the same records, negative answers of a zone, or
// errors.
type class struct {
	kind kind
	name string // name of the record or wildcard in the zone, or the zone
	typ  uint16
}

// verdict says what to do with a response.
type verdict int

const (
	pass verdict = iota
	slip         // send a truncated response, so that an honest client repeats the query over TCP
	drop
)

const (
	// Responses are counted per client network, because an attacker can forge the addresses of a whole network as
	// easily as one.
	prefix4, prefix6 = 24, 56
	// allFactor is the limit for all classes of a client network together, as a multiple of the limit for one class.
	// Large resolvers ask for thousands of names.
	allFactor = 50
	// burst is the capacity of a counter, in seconds of its rate. A network that was silent can get that many responses
	// at once.
	burst = 2
	ways  = 4         // cells among which a counter is chosen
	cells = 128 << 10 // 128 Ki counters of 24 bytes
	parts = 64        // independently locked parts of the table
)

// limiter limits the UDP responses to a network (response rate limiting). An attacker who forges the address of a
// victim would otherwise use the server to flood the victim. The limiter's memory does not grow: a new counter replaces
// the least recently changed one of a few.
//
// Each counter is a token bucket. Every second response above the limit is sent truncated, which makes it no larger
// than the query.
type limiter struct {
	rate  int64 // responses per second for one class; 0 means no limit
	now   func() time.Time
	start time.Time
	seed  maphash.Seed
	parts [parts]struct {
		mu    sync.Mutex
		cells [cells / parts]cell
	}
}

// cell is a counter.
type cell struct {
	key  uint64
	at   int64 // time of the last change, in nanoseconds since the start
	left int32 // responses left, in thousandths
	turn uint32
}

// newLimiter returns a limiter for rate responses per second in one class.
func newLimiter(rate int, now func() time.Time) *limiter {
	return &limiter{rate: int64(rate), now: now, start: now(), seed: maphash.MakeSeed()}
}

// allow counts a response to a client and returns what to do with it.
func (l *limiter) allow(client netip.Addr, c class) verdict {
	if l.rate == 0 {
		return pass
	}
	at := int64(l.now().Sub(l.start))
	network := networkOf(client)
	if v := l.take(l.key(network, class{kind: kindAll}), at, l.rate*allFactor); v != pass {
		return v
	}
	return l.take(l.key(network, c), at, l.rate)
}

// networkOf returns the network of an address, in the form of its first address.
func networkOf(a netip.Addr) netip.Addr {
	a = a.Unmap()
	bits := prefix6
	if a.Is4() {
		bits = prefix4
	}
	p, err := a.Prefix(bits)
	if err != nil { // the address is not valid; all such addresses share a counter
		return netip.Addr{}
	}
	return p.Addr()
}

func (l *limiter) key(network netip.Addr, c class) uint64 {
	var h maphash.Hash
	h.SetSeed(l.seed)
	a := network.As16()
	h.Write(a[:])
	var b [3]byte
	b[0] = byte(c.kind)
	binary.BigEndian.PutUint16(b[1:], c.typ)
	h.Write(b[:])
	h.WriteString(c.name)
	return h.Sum64()
}

// take takes one response from the counter with the given key.
func (l *limiter) take(key uint64, at, rate int64) verdict {
	const whole = 1000
	full := int32(min(rate*burst*whole, 1<<31-1))
	p := &l.parts[key%parts]
	i := int(key/parts) % (cells / parts / ways) * ways
	p.mu.Lock()
	defer p.mu.Unlock()
	set := p.cells[i : i+ways]
	var c *cell
	oldest := &set[0]
	for j := range set {
		if set[j].key == key {
			c = &set[j]
			break
		}
		if set[j].at < oldest.at {
			oldest = &set[j]
		}
	}
	if c == nil {
		c = oldest
		*c = cell{key: key, at: at, left: full}
	}
	if passed := min(at-c.at, burst*int64(time.Second)); passed > 0 {
		gained := passed / 1000 * rate * whole / 1_000_000 // a microsecond is exact enough
		if gained > 0 {
			c.left = int32(min(int64(c.left)+gained, int64(full)))
			c.at = at
		}
	}
	if c.left >= whole {
		c.left -= whole
		return pass
	}
	if c.turn++; c.turn%2 == 1 {
		return slip
	}
	return drop
}
