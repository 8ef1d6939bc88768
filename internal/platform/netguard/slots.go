package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

// ErrBusy means that a fetch found no free slot in time, because the maximum number of fetches from the host is in
// progress. ErrBusy does not imply that the host has a problem.
var ErrBusy = errors.New("too many fetches from this host at once")

// Limits on simultaneous fetches on this node, for one host and for one address.
const (
	fetchesPerHost  = 16
	fetchesPerOwner = 4
	slowFor         = 5 * time.Minute // how long an owner may run only one fetch at a time from a slow host
	slowKept        = 10_000
)

// slots limits the number of simultaneous fetches from each host, both per owner and for all owners together.
type slots struct {
	mu     sync.Mutex
	hosts  map[string]*counts
	owners map[hostOwner]*counts
	slow   map[hostOwner]time.Time // time until which a host counts as slow for an owner
}

type hostOwner struct{ host, owner string }

// counts counts the fetches from one host, or one owner's fetches from that host. A counts value is deleted when it has
// no users.
type counts struct {
	users int
	all   *fairshare.Pool  // slots of the host, shared by all owners
	few   *fairshare.Turns // slots of one owner for the host
}

func newSlots() *slots {
	return &slots{hosts: map[string]*counts{}, owners: map[hostOwner]*counts{}, slow: map[hostOwner]time.Time{}}
}

// acquire waits for a free slot for a host. The returned leave function releases the slot; a second call to leave does
// nothing.
func (p *slots) acquire(ctx context.Context, host, owner string) (leave func(), err error) {
	k := hostOwner{host, owner}
	p.mu.Lock()
	all, mine := p.hosts[host], p.owners[k]
	if all == nil {
		all = &counts{all: fairshare.New(fetchesPerHost, fairshare.Greed)}
		p.hosts[host] = all
	}
	if mine == nil {
		most := fetchesPerOwner
		if time.Now().Before(p.slow[k]) {
			most = 1
		}
		mine = &counts{few: fairshare.NewTurns(most, 0)}
		p.owners[k] = mine
	}
	all.users++
	mine.users++
	p.mu.Unlock()
	forget := func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if all.users--; all.users == 0 {
			delete(p.hosts, host)
		}
		if mine.users--; mine.users == 0 {
			delete(p.owners, k)
		}
	}
	if err := mine.few.Acquire(ctx, owner); err != nil {
		forget()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	if err := all.all.Acquire(ctx, owner, 1); err != nil {
		mine.few.Release(owner)
		forget()
		return nil, fmt.Errorf("%w: %w", ErrBusy, err)
	}
	return sync.OnceFunc(func() {
		all.all.Release(owner, 1)
		mine.few.Release(owner)
		forget()
	}), nil
}

// heard records whether a host was slow for an owner. Other owners are not affected.
func (p *slots) heard(host, owner string, slow bool) {
	k := hostOwner{host, owner}
	p.mu.Lock()
	defer p.mu.Unlock()
	most := fetchesPerOwner
	if slow {
		most = 1
		if len(p.slow) >= slowKept {
			clear(p.slow)
		}
		p.slow[k] = time.Now().Add(slowFor)
	} else {
		delete(p.slow, k)
	}
	if mine := p.owners[k]; mine != nil {
		mine.few.SetLimit(most, 0)
	}
}

// ownerKey is the key under which a request's context stores the owner.
type ownerKey struct{}

// dialing is one call to DialContext together with the slots that it holds, keyed by address. A single call to
// DialContext may try several addresses at the same time.
type dialing struct {
	mu    sync.Mutex
	over  bool
	taken map[netip.Addr]func()
}

type dialingKey struct{}

// dialBounded is like DialContext, but for Fetch. Each connection holds a slot for its address until it is closed,
// regardless of the host name.
func (g *Guard) dialBounded(ctx context.Context, network, address string) (net.Conn, error) {
	d := &dialing{taken: map[netip.Addr]func(){}}
	c, err := g.bounded.DialContext(context.WithValue(ctx, dialingKey{}, d), network, address)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	var leave func()
	if err == nil {
		if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			addr := at.AddrPort().Addr().Unmap()
			leave = d.taken[addr]
			delete(d.taken, addr)
		}
	}
	for _, other := range d.taken {
		other()
	}
	if err != nil {
		return nil, err
	}
	return &placed{c, leave}, nil
}

// acquireSlot waits for a free slot for an address before the Guard connects to it.
func (g *Guard) acquireSlot(ctx context.Context, to netip.Addr) error {
	d, _ := ctx.Value(dialingKey{}).(*dialing)
	owner, _ := ctx.Value(ownerKey{}).(string)
	leave, err := g.slots.acquire(ctx, to.String(), owner)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, twice := d.taken[to]; twice || d.over {
		leave()
		return nil
	}
	d.taken[to] = leave
	return nil
}

// placed is a connection that releases its slot when it is closed.
type placed struct {
	net.Conn
	leave func()
}

func (c *placed) Close() error {
	if c.leave != nil {
		c.leave()
	}
	return c.Conn.Close()
}
