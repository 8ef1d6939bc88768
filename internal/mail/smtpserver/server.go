package smtpserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pires/go-proxyproto"

	"github.com/postrider/postrider/internal/lib/lograte"
)

// Server is an SMTP server.
type Server struct {
	c       Config
	handler Handler
	log     *slog.Logger

	away lograte.Limiter // limits log lines during an outage

	usedSlots atomic.Int64 // number of slots in use; changed only while mu is held

	mu     sync.Mutex
	conns  map[*conn]struct{} // all connections; those without a slot are either new or ending
	byAddr map[netip.Addr]int
	ending bool
}

// New returns a Server that passes sessions to handler.
func New(c Config, handler Handler, log *slog.Logger) *Server {
	return &Server{c: c.withDefaults(), handler: handler, log: log, conns: map[*conn]struct{}{},
		byAddr: map[netip.Addr]int{}}
}

// Connections returns the number of connections that have a slot.
func (s *Server) Connections() int64 { return s.usedSlots.Load() }

// Serve accepts connections from l until ctx is done. Serve then closes idle connections immediately, and interrupts
// messages in progress after the grace period. Serve closes l and returns when all connections have ended. Serve
// returns an error only if the listener fails. Serve may be called only once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// After ctx is done, work in progress may continue for the grace period.
	work, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	var all sync.WaitGroup
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	err := s.accept(ctx, work, l, &all)
	l.Close()
	s.end()
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	grace := time.NewTimer(s.c.Grace)
	defer grace.Stop()
	select {
	case <-ended:
	case <-grace.C:
		cut()
		s.cut()
		<-ended
	}
	return err
}

// accept accepts connections until ctx is done or the listener fails permanently.
func (s *Server) accept(ctx, work context.Context, l net.Listener, all *sync.WaitGroup) error {
	for wait := time.Duration(0); ; {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept SMTP connections: %w", err)
		case err != nil: // for example, if no file descriptors are free until connections end
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Warn("could not accept an SMTP connection; it is tried again", "error", err, "wait", wait)
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
			continue
		}
		wait = 0
		c := newConn(work, s, nc)
		if !s.register(c) {
			c.refuse(tooMany)
			continue
		}
		all.Go(func() {
			defer s.leave(c)
			c.serve()
		})
	}
}

// register records a connection, or returns false if the server is shutting down or already has twice MaxConnections
// connections. A connection without a slot is either new or ending.
func (s *Server) register(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= 2*s.c.MaxConnections || s.ending {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// Replies to connections for which no slot is available.
var (
	tooMany      = Refuse(421, "4.3.2", "Too many connections, try again later")
	tooManyOfOne = Refuse(421, "4.7.0", "Too many connections from your address, try again later")
)

// admit acquires a slot for a connection from the given address, or returns a refusal. The limit for the address is
// checked first, so that a client that exceeds it does not cause another connection to be evicted.
func (s *Server) admit(c *conn, a netip.Addr) *Refusal {
	a = counted(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.c.MaxPerAddr > 0 && s.byAddr[a] >= s.c.MaxPerAddr:
		return tooManyOfOne
	case s.ending, s.usedSlots.Load() >= int64(s.c.MaxConnections) && !s.freeSlot():
		return tooMany
	}
	s.byAddr[a]++
	c.addr, c.hasSlot = a, true
	s.usedSlots.Add(1)
	return nil
}

// counted returns the key by which connections are counted: an IPv4 address or an IPv6 network. IPv6 connections are
// counted by /64 network, because providers assign one to each customer.
func counted(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is6() {
		a = netip.PrefixFrom(a.WithZone(""), 64).Masked().Addr()
	}
	return a
}

func (s *Server) leave(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	s.releaseSlot(c)
}

// releaseSlot frees the slot of a connection. The caller must hold s.mu.
func (s *Server) releaseSlot(c *conn) {
	if !c.hasSlot {
		return
	}
	c.hasSlot = false
	s.usedSlots.Add(-1)
	if s.byAddr[c.addr]--; s.byAddr[c.addr] == 0 {
		delete(s.byAddr, c.addr)
	}
}

// end makes every connection end as soon as no message is in progress on it.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for c := range s.conns {
		c.end()
	}
	for c := range s.conns { // from here on, no connection starts a message
		c.wakeToEnd()
	}
}

// cut closes every connection immediately.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.raw.Close()
	}
}

// unwrap returns nc or, if the peer is a trusted proxy, a connection that reads the PROXY header and reports the
// client's address.
func (s *Server) unwrap(nc net.Conn) net.Conn {
	from := addrPort(nc.RemoteAddr()).Addr().Unmap()
	for _, p := range s.c.ProxyFrom {
		if p.Contains(from) {
			return proxyproto.NewConn(nc, proxyproto.WithPolicy(proxyproto.REQUIRE),
				proxyproto.SetReadHeaderTimeout(s.c.Timeouts.Handshake))
		}
	}
	return nc
}

// addrPort returns the IP address and port of a TCP address, or the zero value for any other address.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
