package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/netguard"
)

// perAddress is how many connections one team's deliveries have to one address at the same time, whatever the names
// and ports of its endpoints: many endpoints that lead to a stranger's machine must not make this node a flood. A
// connection carries one request at a time.
const perAddress = 64

// errCrowded says that a team has all the connections to an address that it may have.
var errCrowded = errors.New("the team has as many connections to the address of the endpoint as it may have")

// newClient returns the client of all attempts. It speaks HTTP/1.1: over a shared HTTP/2 connection one that has died
// would hold up every message of its endpoint.
func newClient(guard *netguard.Guard, timeout time.Duration) *http.Client {
	c := &connections{guard: guard, all: map[place]map[*connection]bool{}}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:            c.dial,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           1000,
			MaxIdleConnsPerHost:    perEndpoint,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true, // what is kept is what was sent
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// connections has those that are open, by team and address. One counts for the team whose attempt dialled it until it
// is closed, whoever uses it after that.
type connections struct {
	guard *netguard.Guard

	mu  sync.Mutex
	all map[place]map[*connection]bool
}

// place is where a team's connections are counted.
type place struct {
	team string
	to   netip.Addr
}

// connection is one that is open or about to be.
type connection struct {
	net.Conn
	c    *connections
	at   place
	used bool // by a request, now or before
	uses int  // requests that have it: 0 while it idles, and 2 for a moment when the next one is quick
}

type teamKey struct{}

// forTeam says for which team a request is made, and follows the use of its connection.
func forTeam(ctx context.Context, teamID string) context.Context {
	var conn *connection
	return httptrace.WithClientTrace(context.WithValue(ctx, teamKey{}, teamID), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			under := info.Conn
			if t, ok := under.(*tls.Conn); ok {
				under = t.NetConn()
			}
			if conn, _ = under.(*connection); conn != nil {
				conn.use(1)
			}
		},
		PutIdleConn: func(err error) {
			if err == nil && conn != nil {
				conn.use(-1)
			}
		},
	})
}

// dial connects, unless the team has all its connections to the address in use. The addresses of one name may be
// tried at the same time.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	team, _ := ctx.Value(teamKey{}).(string)
	var mu sync.Mutex
	var tried []*connection
	conn, err := c.guard.DialAdmitted(ctx, network, address, func(to netip.AddrPort) error {
		x := &connection{c: c, at: place{team, to.Addr().Unmap()}}
		if !c.enter(x) {
			return errCrowded
		}
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, x)
		return nil
	})
	var there netip.Addr
	if err == nil {
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			there = a.AddrPort().Addr().Unmap()
		}
	}
	mu.Lock()
	defer mu.Unlock()
	var made *connection
	for _, x := range tried {
		if made == nil && err == nil && x.at.to == there {
			made = x
			continue
		}
		c.leave(x)
	}
	switch {
	case err != nil:
		return nil, err
	case made == nil:
		conn.Close()
		return nil, fmt.Errorf("connected to %s, which was not asked for", there)
	}
	made.Conn = conn
	return made, nil
}

// enter counts a connection before it is made. One that idles makes room for it.
func (c *connections) enter(x *connection) bool {
	c.mu.Lock()
	here := c.all[x.at]
	var idle *connection
	if len(here) >= perAddress {
		for other := range here {
			if other.used && other.uses == 0 {
				idle = other
				break
			}
		}
		if idle == nil {
			c.mu.Unlock()
			return false
		}
		delete(here, idle)
	}
	if here == nil {
		here = map[*connection]bool{}
		c.all[x.at] = here
	}
	here[x] = true
	c.mu.Unlock()
	if idle != nil {
		idle.Conn.Close() // a request that is about to use it finds that out before it writes, and takes another
	}
	return true
}

func (c *connections) leave(x *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := c.all[x.at]
	if delete(here, x); len(here) == 0 {
		delete(c.all, x.at)
	}
}

func (x *connection) use(n int) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.used = true
	x.uses += n
}

// Close closes the connection and gives its place back.
func (x *connection) Close() error {
	defer x.c.leave(x)
	return x.Conn.Close()
}
