package delivery

import (
	"context"
	"net"

	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// socket is a network connection that counts against the pool's limits until it is closed. To end an SMTP connection,
// the client sends QUIT and waits for the answer. Until the answer arrives, the host still counts the connection.
type socket struct {
	net.Conn
	pool          *pool
	addr          string
	ended, closed bool // guarded by the pool's mutex
}

func (s *socket) Close() error {
	err := s.Conn.Close()
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.ended && !s.closed {
		s.pool.uncountEnded(s.addr)
	}
	s.closed = true
	return err
}

// uncountEnded stops counting a connection that has ended and is now closed.
func (p *pool) uncountEnded(addr string) {
	if p.ending[addr]--; p.ending[addr] == 0 {
		delete(p.ending, addr)
	}
}

// markEnded counts a connection as ended but not yet closed.
func (p *pool) markEnded(s *socket) {
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

// dialer returns a dial function that stores the new socket in got.
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

// modes lists the TLS modes that a pooled connection may have.
var modes = []smtpclient.TLSMode{smtpclient.TLSOpportunistic, smtpclient.TLSNone, smtpclient.TLSRequired,
	smtpclient.TLSImplicit, smtpclient.TLSEncrypted, smtpclient.TLSDANE}

// unused returns the number of connections to an address that are idle, or that have ended but are not closed yet.
func (p *pool) unused(addr string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.ending[addr]
	for _, mode := range modes {
		n += len(p.idle[poolKey{addr, mode}])
	}
	return n
}

// addresses returns the addresses that have idle connections, or connections that have ended but are not closed yet.
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

// trim ends idle connections to an address so that at most n remain. The oldest connections are ended first.
func (p *pool) trim(addr string, n int) {
	var ended []*pooledConn
	p.mu.Lock()
	for _, mode := range modes {
		k := poolKey{addr, mode}
		all := p.idle[k]
		keep := min(max(n, 0), len(all))
		ended = append(ended, all[:len(all)-keep]...) // the slice all is sorted oldest first
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
