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

	"github.com/postrider/postrider/internal/platform/netguard"
)

// perAddress is the maximum number of connections for one team's deliveries to one address, across the names and ports
// of its endpoints. The connection limit keeps many endpoints that point to the same machine from flooding it. A
// connection is used for one request at a time.
const perAddress = 64

// errCrowded means that a team already has the maximum number of connections to an address.
var errCrowded = errors.New("the team has as many connections to the address of the endpoint as it may have")

// newClient returns the HTTP client for all attempts. The client uses HTTP/1.1, because with HTTP/2 one dead connection
// would block all messages to its endpoint.
func newClient(guard *netguard.Guard, timeout time.Duration) *http.Client {
	c := &connections{guard: guard, all: map[connKey]map[*connection]bool{}}
	return &http.Client{
		Timeout: timeout,
		Transport: &http.Transport{
			DialContext:            c.dial,
			TLSHandshakeTimeout:    10 * time.Second,
			MaxResponseHeaderBytes: 64 << 10,
			MaxIdleConns:           1000,
			MaxIdleConnsPerHost:    perEndpoint,
			IdleConnTimeout:        30 * time.Second,
			DisableCompression:     true, // to store responses as the receiver sent them
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// connections counts the open connections by team and address. Until it is closed, a connection counts for the team
// whose attempt opened it, even if another team reuses it.
type connections struct {
	guard *netguard.Guard

	mu  sync.Mutex
	all map[connKey]map[*connection]bool
}

// connKey identifies the team and the address for which a connection counts.
type connKey struct {
	team string
	to   netip.Addr
}

// connection is an open connection, or a connection that is being opened.
type connection struct {
	net.Conn
	c    *connections
	key  connKey
	used bool // whether a request has used the connection
	uses int  // number of requests in progress: 0 if idle, briefly 2 if the next request starts early
}

type teamKey struct{}

// forTeam returns a context for a team's request. The context tracks which connection the request uses.
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

// dial opens a connection, unless the team already has the maximum number of connections to the address. Several
// addresses of one host name may be dialed at the same time.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	team, _ := ctx.Value(teamKey{}).(string)
	var mu sync.Mutex
	var tried []*connection
	conn, err := c.guard.DialAdmitted(ctx, network, address, func(to netip.AddrPort) error {
		x := &connection{c: c, key: connKey{team, to.Addr().Unmap()}}
		if !c.acquire(x) {
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
		if made == nil && err == nil && x.key.to == there {
			made = x
			continue
		}
		c.release(x)
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

// acquire counts a connection before it is opened. If the limit is reached, acquire closes an idle connection, or
// returns false if none is idle.
func (c *connections) acquire(x *connection) bool {
	c.mu.Lock()
	here := c.all[x.key]
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
		c.all[x.key] = here
	}
	here[x] = true
	c.mu.Unlock()
	if idle != nil {
		// A request that is about to use the closed connection notices this before it writes, and uses another
		// connection.
		idle.Conn.Close()
	}
	return true
}

func (c *connections) release(x *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	here := c.all[x.key]
	if delete(here, x); len(here) == 0 {
		delete(c.all, x.key)
	}
}

func (x *connection) use(n int) {
	x.c.mu.Lock()
	defer x.c.mu.Unlock()
	x.used = true
	x.uses += n
}

// Close closes the connection and removes it from the count.
func (x *connection) Close() error {
	defer x.c.release(x)
	return x.Conn.Close()
}
