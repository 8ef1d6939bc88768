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

	away lograte.Limiter // limits log lines about what is unavailable

	taken atomic.Int64 // places of MaxConnections; written with the lock held

	mu     sync.Mutex
	conns  map[*conn]struct{} // including those that have no place yet, or have lost it and are ending
	byAddr map[netip.Addr]int
	ending bool
}

// New returns a server that calls handler.
func New(c Config, handler Handler, log *slog.Logger) *Server {
	return &Server{c: c.withDefaults(), handler: handler, log: log, conns: map[*conn]struct{}{},
		byAddr: map[netip.Addr]int{}}
}

// Serve accepts connections from l until ctx ends, and returns once all have ended: those that wait end at once,
// messages in progress within the grace period. It closes l. An error is that of the listener. A server serves once.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// What is in progress when ctx ends goes on within the grace period.
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

// accept accepts connections until ctx ends or the listener fails permanently.
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
		case err != nil: // Out of file descriptors, for example; connections that end free some.
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
		if !s.enter(c) {
			c.refuse(tooMany)
			continue
		}
		all.Go(func() {
			defer s.leave(c)
			c.serve()
		})
	}
}

// enter registers a connection. Connections without a place are few: they are new, or ending.
func (s *Server) enter(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= 2*s.c.MaxConnections || s.ending {
		return false
	}
	s.conns[c] = struct{}{}
	return true
}

// Replies to connections for which there is no place.
var (
	tooMany      = Refuse(421, "4.3.2", "Too many connections, try again later")
	tooManyOfOne = Refuse(421, "4.7.0", "Too many connections from your address, try again later")
)

// admit gives a connection from an address a place, or returns the refusal. It checks the limit of the address first,
// so that a client over its limit costs no other client a place.
func (s *Server) admit(c *conn, a netip.Addr) *Refusal {
	a = counted(a)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.c.MaxPerAddr > 0 && s.byAddr[a] >= s.c.MaxPerAddr:
		return tooManyOfOne
	case s.ending, s.taken.Load() >= int64(s.c.MaxConnections) && !s.makeRoom():
		return tooMany
	}
	s.byAddr[a]++
	c.addr, c.placed = a, true
	s.taken.Add(1)
	return nil
}

// counted returns the address or network by which connections are counted: in IPv6, one customer of a provider has a
// network of 64 bits.
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
	s.vacate(c)
}

// vacate takes away a connection's place. The caller holds the lock.
func (s *Server) vacate(c *conn) {
	if !c.placed {
		return
	}
	c.placed = false
	s.taken.Add(-1)
	if s.byAddr[c.addr]--; s.byAddr[c.addr] == 0 {
		delete(s.byAddr, c.addr)
	}
}

// end makes every connection end as soon as it has no message in progress.
func (s *Server) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ending = true
	for c := range s.conns {
		c.end()
	}
	for c := range s.conns { // once the first client reads 421, no connection begins anything
		c.wakeToEnd()
	}
}

// cut closes every connection.
func (s *Server) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.raw.Close()
	}
}

// unwrap reads the PROXY header if the peer is a proxy, and returns a connection with the client's address.
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

// addrPort returns the address and port of a TCP address; the zero value for any other.
func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(*net.TCPAddr); ok {
		ap := t.AddrPort()
		return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
	}
	return netip.AddrPort{}
}
