package webhooks

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/netguard"
)

// perAddress is how many connections one team's deliveries have to one address at the same time, whatever the names and ports of
// its endpoints: many endpoints that lead to a stranger's machine must not make this node a flood. A connection carries one
// request at a time.
const perAddress = 64

// errCrowded says that a team has all the connections to an address that it may have.
var errCrowded = errors.New("the team has as many connections to the address of the endpoint as it may have")

// newClient returns the client of all attempts. It speaks HTTP/1.1: over a shared HTTP/2 connection one that has died
// would hold up every message of its endpoint.
func newClient(guard *netguard.Guard, timeout time.Duration) *http.Client {
	c := &connections{guard: guard, n: map[connectionsKey]int{}}
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

// connections counts connections by team and address. One counts for the team whose attempt dialled it until it is closed, whoever
// uses it after that.
type connections struct {
	guard *netguard.Guard

	mu sync.Mutex
	n  map[connectionsKey]int
}

type connectionsKey struct {
	team string
	to   netip.Addr
}

type teamKey struct{}

// withTeam says for which team a request is made.
func withTeam(ctx context.Context, teamID string) context.Context {
	return context.WithValue(ctx, teamKey{}, teamID)
}

// dial connects, unless the team has all its connections to the address.
func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	team, _ := ctx.Value(teamKey{}).(string)
	var mu sync.Mutex
	var tried []connectionsKey // addresses of one name may be tried at the same time
	conn, err := c.guard.DialAdmitted(ctx, network, address, func(to netip.AddrPort) error {
		k := connectionsKey{team, to.Addr().Unmap()}
		if !c.take(k) {
			return errCrowded
		}
		mu.Lock()
		defer mu.Unlock()
		tried = append(tried, k)
		return nil
	})
	mu.Lock()
	defer mu.Unlock()
	used := connectionsKey{}
	if err == nil {
		if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
			used = connectionsKey{team, a.AddrPort().Addr().Unmap()}
		}
	}
	counted := &counted{Conn: conn, close: func() {}}
	for _, k := range tried {
		if k == used {
			counted.close = sync.OnceFunc(func() { c.give(k) })
			used = connectionsKey{}
			continue
		}
		c.give(k)
	}
	if err != nil {
		return nil, err
	}
	return counted, nil
}

func (c *connections) take(k connectionsKey) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[k] >= perAddress {
		return false
	}
	c.n[k]++
	return true
}

func (c *connections) give(k connectionsKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n[k]--; c.n[k] == 0 {
		delete(c.n, k)
	}
}

// counted is a connection that gives its place back when it is closed.
type counted struct {
	net.Conn
	close func()
}

// Close closes the connection.
func (c *counted) Close() error {
	defer c.close()
	return c.Conn.Close()
}
