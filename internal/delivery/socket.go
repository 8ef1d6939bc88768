package delivery

import (
	"context"
	"net"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// socket is a connection that the pool counts until it is closed. A connection that was ended says QUIT and waits for
// the answer, and all that time it is one of those that the host counts.
type socket struct {
	net.Conn
	pool          *pool
	addr          string
	ended, closed bool // guarded by the pool
}

func (s *socket) Close() error {
	err := s.Conn.Close()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.ended && !s.closed {
		s.pool.leave(s.addr)
	}
	s.closed = true
	return err
}

// leave counts a connection that was ended as closed.
func (p *pool) leave(addr string) {
	if p.ending[addr]--; p.ending[addr] == 0 {
		delete(p.ending, addr)
	}
}

// ends counts a connection as one that was ended.
func (p *pool) ends(s *socket) {
	if s == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !s.closed && !s.ended {
		s.ended = true
		p.ending[s.addr]++
	}
}

// dialer returns a function that dials, and sets got to what came of it.
func (s *Service) dialer(addr string, got **socket) func(context.Context, string, string) (net.Conn, error) {
	dial := s.c.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	return func(ctx context.Context, network, to string) (net.Conn, error) {
		c, err := dial(ctx, network, to)
		if err != nil {
			return nil, err
		}
		*got = &socket{Conn: c, pool: s.pool, addr: addr}
		return *got, nil
	}
}

// modes are all that a pooled connection may have.
var modes = []smtpclient.TLSMode{smtpclient.TLSOpportunistic, smtpclient.TLSNone, smtpclient.TLSRequired,
	smtpclient.TLSImplicit}

// unused is how many connections to an address nobody uses: they are kept, or have been ended and are not closed yet.
func (p *pool) unused(addr string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.ending[addr]
	for _, mode := range modes {
		n += len(p.idle[poolKey{addr, mode}])
	}
	return n
}

// addresses are those to which nobody uses a connection that there is.
func (p *pool) addresses() map[string]bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]bool{}
	for k := range p.idle {
		all[k.addr] = true
	}
	for addr := range p.ending {
		all[addr] = true
	}
	return all
}

// trim ends kept connections to an address beyond a number.
func (p *pool) trim(addr string, n int) {
	var ended []*link
	p.mu.Lock()
	for _, mode := range modes {
		k := poolKey{addr, mode}
		all := p.idle[k]
		keep := min(max(n, 0), len(all))
		ended = append(ended, all[:len(all)-keep]...) // the first are the oldest
		if keep == 0 {
			delete(p.idle, k)
		} else {
			p.idle[k] = all[len(all)-keep:]
		}
		n -= keep
	}
	p.mu.Unlock()
	for _, l := range ended {
		p.end(l)
	}
}
