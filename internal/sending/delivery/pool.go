package delivery

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// idleMax is how long a connection is kept without a message. Hosts want idle connections closed; those of a busy
// lane are never idle that long.
const idleMax = 15 * time.Second

// poolKey says which messages a kept connection can carry.
type poolKey struct {
	addr string
	mode smtpclient.TLSMode
}

// pooledConn is a connection of the pool.
type pooledConn struct {
	*smtpclient.Conn
	key     poolKey
	opening string // the transcript before the first message
	since   time.Time
	socket  *socket // nil if the pool does not count it
}

// conversation returns the transcript of the last message. The opening belongs to the first message, so a kept
// connection leaves it out.
func (l *pooledConn) conversation(host, tls string, kept bool) string {
	all := l.Transcript()
	rest, ok := strings.CutPrefix(all, l.opening)
	if !kept || !ok {
		return all
	}
	if tls == "" {
		tls = "in the clear"
	}
	return "* over a connection that was kept, to " + host + ", " + tls + "\n" + rest
}

// pool keeps connections for later messages, and bounds their total number. The shaper bounds the number of connections
// to one destination.
//
// A message in delivery holds a permit and uses at most one connection at a time. Teams share the permits. Kept
// connections belong to no team: if a new connection would exceed the limit, the oldest kept one is closed. The pool
// has no more permits than connections, so that is always possible at once.
type pool struct {
	limit    int // connections
	messages int // over one connection
	permits  *fairshare.Pool

	mu     sync.Mutex
	idle   map[poolKey][]*pooledConn // the first are the oldest; never an empty list
	open   int                       // connections, including kept ones
	ending map[string]int            // connections that were ended but are not closed yet, by address
}

func newPool(limit, messages int) *pool {
	return &pool{limit: limit, messages: messages, permits: fairshare.New(int64(limit), fairshare.Greed),
		idle:   map[poolKey][]*pooledConn{},
		ending: map[string]int{}}
}

// has reports whether a connection is kept for k.
func (p *pool) has(k poolKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle[k]) > 0
}

// get returns the most recently used kept connection, or nil.
func (p *pool) get(k poolKey) *pooledConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.idle[k]
	if len(all) == 0 {
		return nil
	}
	l := all[len(all)-1]
	if all[len(all)-1] = nil; len(all) == 1 {
		delete(p.idle, k)
	} else {
		p.idle[k] = all[:len(all)-1]
	}
	return l
}

// dial opens a new connection and counts it, closing the oldest kept one if there are too many.
func (p *pool) dial(k poolKey, dial func() (*smtpclient.Conn, error)) (l *pooledConn, err error) {
	p.mu.Lock()
	p.open++
	var oldest *pooledConn
	if p.open > p.limit {
		oldest = p.takeOldest()
	}
	p.mu.Unlock()
	if oldest != nil {
		p.end(oldest)
	}
	defer func() {
		if l == nil { // even when dial panics
			p.closed()
		}
	}()
	c, err := dial()
	if err != nil {
		return nil, err
	}
	return &pooledConn{Conn: c, key: k, opening: c.Transcript()}, nil
}

// put keeps a connection for the next message. It ends the connection if it is not usable or has carried enough
// messages.
func (p *pool) put(l *pooledConn) {
	if !l.Usable() || l.Messages() >= p.messages {
		p.end(l)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.since = time.Now()
	p.idle[l.key] = append(p.idle[l.key], l)
}

func (p *pool) end(l *pooledConn) {
	p.markEnded(l.socket)
	l.Close()
	p.closed()
}

func (p *pool) closed() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open--
}

// takeOldest removes and returns the connection that has been idle longest, or nil.
func (p *pool) takeOldest() *pooledConn {
	var oldest *pooledConn
	for _, all := range p.idle {
		if oldest == nil || all[0].since.Before(oldest.since) {
			oldest = all[0]
		}
	}
	if oldest == nil {
		return nil
	}
	if all := p.idle[oldest.key]; len(all) == 1 {
		delete(p.idle, oldest.key)
	} else {
		p.idle[oldest.key] = all[1:]
	}
	return oldest
}

// run ends connections that are idle for too long until ctx ends, and then all idle ones.
func (p *pool) run(ctx context.Context) {
	tick := time.NewTicker(idleMax / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			p.prune(time.Now().Add(time.Hour))
			return
		case now := <-tick.C:
			p.prune(now.Add(-idleMax))
		}
	}
}

// prune ends the connections that have been idle since before a time.
func (p *pool) prune(before time.Time) {
	var old []*pooledConn
	p.mu.Lock()
	for k, all := range p.idle {
		n := 0 // the first are the oldest
		for n < len(all) && all[n].since.Before(before) {
			n++
		}
		old = append(old, all[:n]...)
		if n == len(all) {
			delete(p.idle, k)
		} else {
			p.idle[k] = all[n:]
		}
	}
	p.mu.Unlock()
	for _, l := range old {
		p.end(l)
	}
}
