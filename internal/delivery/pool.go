package delivery

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

const (
	idleMax     = 15 * time.Second // that a connection is kept without a message
	messagesMax = 1000             // over one connection; hosts like it to end some time
	plainFor    = 6 * time.Hour    // that a host's broken TLS is remembered
	plainHosts  = 10_000
)

// pool keeps connections open for the messages that follow. How many there are to one destination is the shaper's to say.
type pool struct {
	open *semaphore.Weighted // connections to all destinations

	mu    sync.Mutex
	idle  map[string][]idleConn
	plain map[string]time.Time // hosts whose TLS handshake fails, and until when that is believed
}

type idleConn struct {
	*smtpclient.Conn
	since time.Time
}

func newPool(limit int) *pool {
	return &pool{open: semaphore.NewWeighted(int64(limit)), idle: map[string][]idleConn{}, plain: map[string]time.Time{}}
}

// get returns a kept connection, the one used last, or a new one.
func (p *pool) get(ctx context.Context, key string, dial func() (*smtpclient.Conn, error)) (c *smtpclient.Conn, kept bool, err error) {
	p.mu.Lock()
	if l := p.idle[key]; len(l) > 0 {
		c := l[len(l)-1].Conn
		p.idle[key] = l[:len(l)-1]
		p.mu.Unlock()
		return c, true, nil
	}
	p.mu.Unlock()
	if !p.open.TryAcquire(1) {
		p.prune(time.Now()) // an idle one elsewhere makes room
		if err := p.open.Acquire(ctx, 1); err != nil {
			return nil, false, err
		}
	}
	if c, err = dial(); err != nil {
		p.open.Release(1)
	}
	return c, false, err
}

// put keeps a connection for the next message, or ends it.
func (p *pool) put(key string, c *smtpclient.Conn) {
	if !c.Usable() || c.Messages() >= messagesMax {
		p.end(c)
		return
	}
	p.mu.Lock()
	p.idle[key] = append(p.idle[key], idleConn{c, time.Now()})
	p.mu.Unlock()
}

func (p *pool) end(c *smtpclient.Conn) {
	c.Close()
	p.open.Release(1)
}

// run ends connections that were idle for too long, and all of them at the end.
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
	var old []*smtpclient.Conn
	p.mu.Lock()
	for key, l := range p.idle {
		kept := l[:0]
		for _, c := range l {
			if c.since.Before(before) {
				old = append(old, c.Conn)
			} else {
				kept = append(kept, c)
			}
		}
		if p.idle[key] = kept; len(kept) == 0 {
			delete(p.idle, key)
		}
	}
	p.mu.Unlock()
	for _, c := range old {
		p.end(c)
	}
}

// plainOnly reports whether a host's TLS handshake failed lately.
func (p *pool) plainOnly(addr string, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return now.Before(p.plain[addr])
}

func (p *pool) rememberPlain(addr string, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.plain) >= plainHosts {
		clear(p.plain)
	}
	p.plain[addr] = now.Add(plainFor)
}
