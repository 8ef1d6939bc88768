package delivery

import (
	"context"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// idleMax is how long a connection is kept without a message. Hosts like to see them go; a busy lane never comes near.
const idleMax = 15 * time.Second

// poolKey is what a kept connection may serve.
type poolKey struct {
	addr string
	mode smtpclient.TLSMode
}

// link is a connection of the pool.
type link struct {
	*smtpclient.Conn
	key     poolKey
	opening string // what was said before the first message
	since   time.Time
}

// conversation is what was said about the last message. Over a kept connection the opening is left out: it stands with the
// first.
func (l *link) conversation(host, tls string, kept bool) string {
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

// pool keeps connections for the messages that follow, and bounds how many there are to all destinations. How many there are
// to one destination is the shaper's to say.
type pool struct {
	messages int // over one connection
	open     *semaphore.Weighted

	mu      sync.Mutex
	idle    map[poolKey][]*link
	waiting int // for a connection to be closed somewhere
}

func newPool(limit, messages int) *pool {
	return &pool{messages: messages, open: semaphore.NewWeighted(int64(limit)), idle: map[poolKey][]*link{}}
}

// has reports whether a connection is kept.
func (p *pool) has(k poolKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle[k]) > 0
}

// get returns a kept connection, the one used last, or a new one.
func (p *pool) get(ctx context.Context, k poolKey, dial func() (*smtpclient.Conn, error)) (l *link, kept bool, err error) {
	if l := p.takeIdle(k); l != nil {
		return l, true, nil
	}
	if err := p.room(ctx); err != nil {
		return nil, false, err
	}
	c, err := dial()
	if err != nil {
		p.open.Release(1)
		return nil, false, err
	}
	return &link{Conn: c, key: k, opening: c.Transcript()}, false, nil
}

func (p *pool) takeIdle(k poolKey) *link {
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

// room waits until another connection may be opened. One that is idle elsewhere makes room.
func (p *pool) room(ctx context.Context) error {
	if p.open.TryAcquire(1) {
		return nil
	}
	p.mu.Lock()
	p.waiting++
	p.mu.Unlock()
	p.closeOldest()
	err := p.open.Acquire(ctx, 1)
	p.mu.Lock()
	p.waiting--
	p.mu.Unlock()
	return err
}

// put keeps a connection for the next message, or ends it.
func (p *pool) put(l *link) {
	p.mu.Lock()
	if !l.Usable() || l.Messages() >= p.messages || p.waiting > 0 {
		p.mu.Unlock()
		p.end(l)
		return
	}
	l.since = time.Now()
	p.idle[l.key] = append(p.idle[l.key], l)
	p.mu.Unlock()
}

func (p *pool) end(l *link) {
	l.Close()
	p.open.Release(1)
}

// closeOldest ends the connection that has been idle longest.
func (p *pool) closeOldest() {
	p.mu.Lock()
	var oldest *link
	for _, all := range p.idle {
		if oldest == nil || all[0].since.Before(oldest.since) {
			oldest = all[0]
		}
	}
	if oldest != nil {
		if all := p.idle[oldest.key]; len(all) == 1 {
			delete(p.idle, oldest.key)
		} else {
			p.idle[oldest.key] = all[1:]
		}
	}
	p.mu.Unlock()
	if oldest != nil {
		p.end(oldest)
	}
}

// run ends connections that were idle for too long, and all that are idle at the end.
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
	var old []*link
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
