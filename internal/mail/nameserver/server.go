package nameserver

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

	"golang.org/x/sync/errgroup"
)

// Config holds the limits of a server. A zero value means the default, except that of RateLimit.
type Config struct {
	// RateLimit is the maximum number of UDP responses per second to one client network (an IPv4 /24 or an IPv6 /56).
	// It applies to responses with the same records, and to each kind of absence or error. 0 means no limit.
	RateLimit int

	Connections    int           // concurrent TCP connections; default 1000
	PerNetwork     int           // those from one client network; default 50
	IdleTimeout    time.Duration // wait for the next query of a TCP connection; default 10 s
	MessageTimeout time.Duration // time for reading a query and for writing a response over TCP; default 5 s
	MaxAge         time.Duration // age at which a TCP connection is closed; default 5 min

	// Observe, if set, is called after each query, from many goroutines.
	Observe func(Query)
}

// Server answers queries about its zones.
type Server struct {
	c       Config
	log     *slog.Logger
	zones   atomic.Pointer[Set]
	limiter *limiter

	mu    sync.Mutex
	conns map[*conn]struct{}
	byNet map[netip.Addr]int // connections by client network
}

// New returns a server without zones.
func New(c Config, log *slog.Logger) *Server {
	orDefault(&c.Connections, 1000)
	orDefault(&c.PerNetwork, 50)
	orDefault(&c.IdleTimeout, 10*time.Second)
	orDefault(&c.MessageTimeout, 5*time.Second)
	orDefault(&c.MaxAge, 5*time.Minute)
	if c.Observe == nil {
		c.Observe = func(Query) {}
	}
	return &Server{c: c, log: log, limiter: newLimiter(c.RateLimit, time.Now), conns: map[*conn]struct{}{},
		byNet: map[netip.Addr]int{}}
}

func orDefault[T int | time.Duration](value *T, fallback T) {
	if *value == 0 {
		*value = fallback
	}
}

// Use replaces the zones. Queries that are being answered still use the earlier ones.
func (s *Server) Use(zones *Set) { s.zones.Store(zones) }

// Zones returns the zones in use, or nil before the first call of Use.
func (s *Server) Zones() *Set { return s.zones.Load() }

// Connections returns the number of open TCP connections.
func (s *Server) Connections() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int64(len(s.conns))
}

// Sockets are the two sockets of a name server, which have the same address and port.
type Sockets struct {
	udp *net.UDPConn
	tcp net.Listener
}

// Listen opens both sockets at an address such as ":53". If the port is 0, the system chooses one that is free for UDP
// and TCP.
func Listen(address string) (*Sockets, error) {
	var failures error
	for range 20 { // the port of the TCP socket may be in use for UDP
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			return nil, err
		}
		udp, err := net.ListenPacket("udp", tcp.Addr().String())
		if err == nil {
			return &Sockets{udp.(*net.UDPConn), tcp}, nil
		}
		tcp.Close()
		failures = err
		if _, port, _ := net.SplitHostPort(address); port != "0" {
			break
		}
	}
	return nil, failures
}

// Addr returns the address of the sockets.
func (s *Sockets) Addr() net.Addr { return s.tcp.Addr() }

// Close closes sockets that are not served. Serve closes them itself.
func (s *Sockets) Close() error { return errors.Join(s.udp.Close(), s.tcp.Close()) }

// Serve answers queries until ctx ends, and then closes the sockets. It returns an error if a socket fails.
func (s *Server) Serve(ctx context.Context, at *Sockets) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		<-ctx.Done()
		err := at.Close()
		s.endConns()
		return ignoreClosed(err)
	})
	s.servePackets(ctx, g, at.udp)
	g.Go(func() error { return s.accept(ctx, at.tcp) })
	if err := g.Wait(); err != nil {
		return fmt.Errorf("answer DNS queries at %s: %w", at.Addr(), err)
	}
	return nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// pause waits before a failed system call is repeated. Each wait is longer than the one before, up to a second. pause
// returns early if ctx ends.
func pause(ctx context.Context, wait *time.Duration) {
	*wait = min(max(2**wait, 5*time.Millisecond), time.Second)
	t := time.NewTimer(*wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
