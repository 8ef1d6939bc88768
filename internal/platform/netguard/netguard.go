// Package netguard connects to addresses that users supply, such as webhook endpoints and attachment URLs. The package
// refuses addresses that are not public: the machine itself, its private network, and cloud metadata services. Every
// connection to an address that a user supplies must use package netguard.
//
// # Invariants
//
// Package netguard checks an address immediately before the socket connects, after all look-ups. A host name that
// resolves to a different address the second time therefore cannot bypass the check. The check covers every address of
// a host name and every hop in a chain of redirects. Proxies from environment variables are never used, because a proxy
// would connect without checking the address. Responses received through [Guard.Client] and [Guard.Fetch] are limited
// in time and size.
//
// # Failures
//
// The error for a refused address wraps [ErrRefused]. If a response is too long, the error is [ErrTooLarge]. A retry
// does not help after [ErrRefused] or [ErrTooLarge]; a retry may help after [ErrBusy] or [ErrSlow].
//
// # Out of scope
//
// The package does not restrict ports and does not retry. The package cannot recognize private networks that use public
// addresses or a private translation prefix; the operator can deny them (see [Networks]).
package netguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/singleflight"
)

// ErrRefused means that an address is not public.
var ErrRefused = errors.New("address is not public")

// MaxURL is the maximum length of a URL, in bytes.
const MaxURL = 2048

const dialTimeout = 10 * time.Second

// Options are exceptions to the rule that only public addresses are allowed.
type Options struct {
	// AllowLoopback allows 127.0.0.0/8 and ::1, for development.
	AllowLoopback bool
	// AllowPrefixes are address prefixes that are allowed even if they are not public. IPv4 prefixes must not be
	// written as IPv6 prefixes.
	AllowPrefixes []netip.Prefix
	// Networks are the operator's exceptions, which SetNetworks can replace.
	Networks Networks
	// DenySelf lists this program's listeners. Connections to these listeners are refused even if their addresses are
	// allowed. A listener with an unspecified address (0.0.0.0 or ::) stands for all addresses of this machine.
	DenySelf []netip.AddrPort
	// DNSServers are the addresses and ports of DNS servers. The first one looks up the hosts' names. If there are none,
	// the machine's resolver does.
	DNSServers []string
}

// Guard checks network addresses and connects to allowed addresses. A Guard is safe for concurrent use.
type Guard struct {
	opt     Options
	dialer  net.Dialer
	bounded net.Dialer // dialer for Fetch, which waits for a free slot for the address
	// networks are the operator's; they may change while connections are opened.
	networks atomic.Pointer[Networks]
	fetch    *http.Client
	slots    *slots
	probes   singleflight.Group // whether the DNS servers are silent
}

// New returns a guard.
func New(opt Options) *Guard {
	g := &Guard{opt: Options{
		AllowLoopback: opt.AllowLoopback,
		AllowPrefixes: slices.Clone(opt.AllowPrefixes),
		DenySelf:      slices.Clone(opt.DenySelf),
		DNSServers:    slices.Clone(opt.DNSServers),
	}}
	g.dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: g.control,
		Resolver: g.opt.resolver()}
	g.SetNetworks(opt.Networks)
	g.slots = newSlots()
	g.bounded = g.dialer
	g.bounded.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := g.control(ctx, network, address, c); err != nil {
			return err
		}
		return g.acquireSlot(ctx, netip.MustParseAddrPort(address).Addr().Unmap()) // control has already parsed this address
	}
	g.fetch = g.fetcher()
	return g
}

// DialContext connects to host:port over TCP within 10 seconds if the address is allowed.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer.DialContext(ctx, network, address)
}

// DialAdmitted connects like DialContext, but first calls the admit function for each allowed address. If admit returns
// an error, DialAdmitted does not connect to that address. If the machine's DNS servers do not work, the error is an
// outage (fault.IsOutage).
func (g *Guard) DialAdmitted(ctx context.Context, network, address string,
	admit func(netip.AddrPort) error) (net.Conn, error) {
	d := g.dialer
	d.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := g.control(ctx, network, address, c); err != nil {
			return err
		}
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("%w: %s", ErrRefused, address)
		}
		return admit(to)
	}
	conn, err := d.DialContext(ctx, network, address)
	return conn, g.explainDNS(ctx, err)
}

// control checks the address to which a socket is about to connect. The dialer calls control for each address that it
// tries.
func (g *Guard) control(_ context.Context, network, address string, _ syscall.RawConn) error {
	if !strings.HasPrefix(network, "tcp") {
		return fmt.Errorf("%w: network %s", ErrRefused, network)
	}
	to, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrRefused, address)
	}
	if !g.Allowed(to.Addr()) {
		return fmt.Errorf("%w: %s", ErrRefused, to.Addr())
	}
	return g.denySelf(to)
}

// denySelf refuses connections to this program's own listeners. If the port belongs to a listener, denySelf reads the
// machine's current addresses, because they can change.
func (g *Guard) denySelf(to netip.AddrPort) error {
	addr := to.Addr().Unmap().WithZone("")
	for _, self := range g.opt.DenySelf {
		if self.Port() != to.Port() {
			continue
		}
		own := self.Addr().Unmap()
		ours := own == addr
		if own.IsUnspecified() {
			var err error
			if ours, err = onThisMachine(addr); err != nil {
				return fmt.Errorf("%w: addresses of this machine: %w", ErrRefused, err)
			}
		}
		if ours {
			return fmt.Errorf("%w: %s is this server itself", ErrRefused, to)
		}
	}
	return nil
}

func onThisMachine(addr netip.Addr) (bool, error) {
	if addr.IsLoopback() {
		return true, nil // InterfaceAddrs lists only one address in 127.0.0.0/8.
	}
	list, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(list, func(a net.Addr) bool {
		n, ok := a.(*net.IPNet)
		return ok && n.IP.Equal(addr.AsSlice())
	}), nil
}

// CheckURL parses the URL of an endpoint or attachment. Errors from CheckURL are phrases that callers append to the
// name of the request field. The returned URL has no fragment, because HTTP does not send fragments. CheckURL checks IP
// addresses in the URL immediately; host names are checked when they are dialed.
func (g *Guard) CheckURL(text string) (*url.URL, error) {
	if len(text) > MaxURL {
		return nil, fmt.Errorf("must have at most %d characters, has %d", MaxURL, len(text))
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, errors.New("must be a valid URL")
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("must begin with https:// or http://")
	}
	host := u.Hostname()
	if u.Opaque != "" || host == "" || strings.ContainsAny(host, " \t<>\"\\^`{|}") {
		return nil, errors.New("must name a host, as in https://example.com/path")
	}
	if u.User != nil {
		return nil, errors.New("must not have a user name or password; send secrets in the path, the query or a header")
	}
	if n, err := strconv.ParseUint(u.Port(), 10, 16); strings.HasSuffix(u.Host, ":") || u.Port() != "" &&
		(err != nil || n == 0) {
		return nil, errors.New("must have a port between 1 and 65535, or none")
	}
	if addr, err := netip.ParseAddr(host); err == nil && !g.Allowed(addr) {
		return nil, fmt.Errorf("must lead to %s: %w", g.expected(addr), ErrRefused)
	}
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); !g.opt.AllowLoopback &&
		(name == "localhost" || strings.HasSuffix(name, ".localhost")) {
		// RFC 6761 section 6.3 reserves localhost and the names under it for the local machine.
		return nil, fmt.Errorf("must lead to a public address; %s is this machine: %w", host, ErrRefused)
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
