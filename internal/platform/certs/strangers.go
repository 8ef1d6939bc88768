package certs

import (
	"net"
	"net/netip"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

const (
	refusedMax = 10_000 // hosts in memory
	refusedFor = time.Minute
	knownMax   = 10_000 // hosts in memory

	sourceMax   = 10_000 // sources in memory
	sourceRate  = 2      // look-ups per second for handshakes from one source
	sourceBurst = 20
	lookupRate  = 200 // look-ups per second for handshakes from all sources
	lookupBurst = 400
)

// strangers limits the look-ups of hosts that handshakes name and whose certificates are not in memory. A look-up costs
// a query, and anybody can make handshakes with any names.
//
// A host that was refused is not looked up again for refusedFor. A host that was accepted before is always looked up,
// so nobody can keep customers' hosts from getting their certificates again. Other hosts count towards the limits of
// the client's network and of all clients. Each of the lists has a maximum length and forgets the oldest entries.
type strangers struct {
	mu      sync.Mutex
	refused *lru.Cache[string, time.Time] // hosts without a certificate until a time
	known   *lru.Cache[string, struct{}]  // hosts that had a certificate
	sources *lru.Cache[netip.Prefix, *rate.Limiter]
	all     *rate.Limiter
}

func newStrangers() (*strangers, error) {
	s := &strangers{all: rate.NewLimiter(lookupRate, lookupBurst)}
	var err error
	if s.refused, err = lru.New[string, time.Time](refusedMax); err != nil {
		return nil, err
	}
	if s.known, err = lru.New[string, struct{}](knownMax); err != nil {
		return nil, err
	}
	s.sources, err = lru.New[netip.Prefix, *rate.Limiter](sourceMax)
	return s, err
}

// refuse makes handshakes with a host fail for refusedFor, if its certificate is not in memory.
func (s *strangers) refuse(host string) { s.refused.Add(host, time.Now().Add(refusedFor)) }

// accept remembers that a host has a certificate.
func (s *strangers) accept(host string) { s.known.Add(host, struct{}{}) }

// isRefused reports whether a host was refused a short time ago.
func (s *strangers) isRefused(host string) bool {
	until, ok := s.refused.Get(host)
	return ok && time.Now().Before(until)
}

// mayLookUp reports whether a host may be looked up for a client, whose address may be nil.
func (s *strangers) mayLookUp(host string, client net.Addr) bool {
	if s.known.Contains(host) {
		return true
	}
	if network, ok := networkOf(client); ok && !s.limiter(network).Allow() {
		return false
	}
	return s.all.Allow()
}

// limiter returns the limiter of a network.
func (s *strangers) limiter(network netip.Prefix) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.sources.Get(network)
	if !ok {
		l = rate.NewLimiter(sourceRate, sourceBurst)
		s.sources.Add(network, l)
	}
	return l
}

// networkOf returns the network that counts as one source: an IPv4 address or an IPv6 /48, which is the most that one
// customer of a provider usually has. It returns false for addresses of the node's own network, because a load balancer
// there passes on the connections of many clients.
func networkOf(client net.Addr) (netip.Prefix, bool) {
	tcp, ok := client.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	ip := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !ip.IsValid() || ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	bits := 32
	if ip.Is6() {
		bits = 48
	}
	network, err := ip.Prefix(bits)
	return network, err == nil
}
