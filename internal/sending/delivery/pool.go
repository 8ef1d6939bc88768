package delivery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/fairshare"
)

// idleMax is how long an idle connection is kept open. Mail hosts expect clients to close idle connections. The
// connections of a busy lane are never idle for as long as idleMax.
const idleMax = 15 * time.Second

// poolKey is the address, or the key of a relay, and the TLS mode of a connection. A message may reuse an idle
// connection only if both match, and if the connection verified what the message demands (see proof).
type poolKey struct {
	addr string
	mode smtpclient.TLSMode
}

// pooledConn is an SMTP connection in the pool.
type pooledConn struct {
	*smtpclient.Conn
	key     poolKey
	name    string // what the connection verified beyond its TLS mode; see proof
	opening string // the transcript before the first message
	since   time.Time
	socket  *socket // nil if the pool does not count the socket
	plain   bool    // whether the connection is not encrypted because a TLS handshake failed
	most    int     // maximum number of messages if it is less than the pool's; 0 means the pool's
}

// conversation returns the transcript for the last message sent over the connection. The transcript includes the
// greeting and handshake only for the first message on a connection. Later transcripts begin with the message's number.
func (l *pooledConn) conversation(kept bool) string {
	all := l.Transcript()
	if !kept {
		return all
	}
	return strings.TrimPrefix(all, l.opening)
}

// pool keeps idle connections for later messages and limits the total number of connections. The number of connections
// to one destination is limited by the shaper.
//
// A message that is being delivered holds a permit and uses at most one connection at a time. The permits are shared
// among the teams. Idle connections belong to no team: if a new connection would exceed the limit, the oldest idle
// connection is closed. The pool has no more permits than connections, so at the limit at least one connection is idle.
type pool struct {
	limit    int // connections
	messages int // over one connection
	permits  *fairshare.Pool

	mu     sync.Mutex
	idle   map[poolKey][]*pooledConn // oldest first; lists are never empty
	open   int                       // open connections, including idle ones
	ending map[string]int            // number of connections that have ended but are not closed yet, by address
}

func newPool(limit, messages int) *pool {
	return &pool{limit: limit, messages: messages, permits: fairshare.New(int64(limit), fairshare.Greed),
		idle:   map[poolKey][]*pooledConn{},
		ending: map[string]int{}}
}

// size returns the number of open connections, including idle ones.
func (p *pool) size() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open
}

// find returns the index of the most recently used idle connection with key k whose proof is name (see demand.proof)
// and that has sent fewer messages than most, or -1. If most is 0, there is no further limit. The caller holds the
// mutex.
func (p *pool) find(k poolKey, name string, most int) int {
	all := p.idle[k]
	for i := len(all) - 1; i >= 0; i-- {
		if l := all[i]; l.name == name && (most == 0 || l.Messages() < most) {
			return i
		}
	}
	return -1
}

// has reports whether the pool has an idle connection that get would return.
func (p *pool) has(k poolKey, name string, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.find(k, name, most) >= 0
}

// get removes and returns the idle connection that find finds, or returns nil.
func (p *pool) get(k poolKey, name string, most int) *pooledConn {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.find(k, name, most)
	if i < 0 {
		return nil
	}
	all := p.idle[k]
	l := all[i]
	if len(all) == 1 {
		delete(p.idle, k)
	} else {
		p.idle[k] = slices.Delete(all, i, i+1)
	}
	return l
}

// dial opens and counts a new connection. If the limit is exceeded, dial first closes the oldest idle connection.
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
		if l == nil { // runs even if dial panics
			p.closed()
		}
	}()
	c, err := dial()
	if err != nil {
		return nil, err
	}
	return &pooledConn{Conn: c, key: k, opening: c.Transcript()}, nil
}

// put returns a connection to the pool for the next message. If the connection is unusable or has sent its maximum
// number of messages, put ends the connection.
func (p *pool) put(l *pooledConn) {
	if !l.Usable() || l.Messages() >= p.messages || l.most > 0 && l.Messages() >= l.most {
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

// run ends connections that are idle for too long. When ctx ends, run ends all idle connections and returns.
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

// prune ends connections that have been idle since before the given time.
func (p *pool) prune(before time.Time) {
	var old []*pooledConn
	p.mu.Lock()
	for k, all := range p.idle {
		n := 0 // the slice all is sorted oldest first
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
