// Package netguard is the one way to connect to addresses that users give us: webhook endpoints, attachment paths. It
// keeps them from reaching what only we can reach: this machine, its network, the cloud's metadata services.
//
// Invariants: the address is judged when the socket is about to connect, after every look-up, so a name that answers
// differently the second time gains nothing. It holds for each address that a name has and each hop of a redirect.
// Proxies of the environment are never used: a proxy would connect for us, unjudged. Every response is limited in
// time and size.
//
// Failure: a refused address is ErrRefused, in the chain of what the client returns; a response that is too long is
// ErrTooLarge. Neither gets better by trying again; ErrBusy does.
//
// Not here: whether a port is a sensible one (a guess at other people's networks), retries, and networks of one's own
// that have public addresses or translate them under a prefix of their own: those must be closed by a firewall.
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
	"syscall"
	"time"
)

// ErrRefused says that an address is not public.
var ErrRefused = errors.New("address is not public")

// MaxURL is the greatest length of a URL, in bytes.
const MaxURL = 2048

const dialTimeout = 10 * time.Second

// Options says what is allowed beyond public addresses, and what is refused of those.
type Options struct {
	// AllowLoopback allows 127.0.0.0/8 and ::1, for development.
	AllowLoopback bool
	// AllowPrefixes are allowed whatever they are. IPv4 is written as such.
	AllowPrefixes []netip.Prefix
	// DenySelf are our own listeners, refused even when their addresses are allowed. An unspecified address stands for
	// all addresses of this machine.
	DenySelf []netip.AddrPort
}

// Guard judges and dials addresses. It is safe for concurrent use.
type Guard struct {
	opt     Options
	dialer  net.Dialer
	bounded net.Dialer // of fetches: waits for a place at each address
	fetch   *http.Client
	places  *places
}

// New returns a guard.
func New(opt Options) *Guard {
	g := &Guard{opt: Options{
		AllowLoopback: opt.AllowLoopback,
		AllowPrefixes: slices.Clone(opt.AllowPrefixes),
		DenySelf:      slices.Clone(opt.DenySelf),
	}}
	g.dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, ControlContext: g.control}
	g.places = newPlaces()
	g.bounded = g.dialer
	g.bounded.ControlContext = func(ctx context.Context, network, address string, c syscall.RawConn) error {
		if err := g.control(ctx, network, address, c); err != nil {
			return err
		}
		return g.takePlace(ctx, netip.MustParseAddrPort(address).Addr().Unmap()) // control has parsed it
	}
	g.fetch = g.fetcher()
	return g
}

// DialContext connects to host:port over TCP when the address is allowed, within 10 seconds.
func (g *Guard) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return g.dialer.DialContext(ctx, network, address)
}

// DialAdmitted is DialContext with one more judge: admit is asked for each address that is allowed and about to be
// connected to, and its error refuses that address.
func (g *Guard) DialAdmitted(ctx context.Context, network, address string, admit func(netip.AddrPort) error) (net.Conn, error) {
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
	return d.DialContext(ctx, network, address)
}

// control is called with the address that a socket is about to connect to, once for each that is tried.
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

// denySelf refuses our own listeners. The addresses of the machine are asked for each time, because they change; it
// happens only when the port is ours.
func (g *Guard) denySelf(to netip.AddrPort) error {
	addr := to.Addr().Unmap().WithZone("")
	for _, self := range g.opt.DenySelf {
		if self.Port() != to.Port() {
			continue
		}
		ours := self.Addr().Unmap() == addr
		if self.Addr().IsUnspecified() {
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
		return true, nil // All of 127.0.0.0/8, of which only one is listed.
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

// CheckURL reads the URL of an endpoint or attachment and says what is wrong with it, in words that follow the name of
// the field. The result has no fragment, which is not sent anyway. Names are judged when they are dialled; an
// address in the URL is judged at once.
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
	if n, err := strconv.ParseUint(u.Port(), 10, 16); strings.HasSuffix(u.Host, ":") || u.Port() != "" && (err != nil || n == 0) {
		return nil, errors.New("must have a port between 1 and 65535, or none")
	}
	if addr, err := netip.ParseAddr(host); err == nil && !g.Allowed(addr) {
		return nil, fmt.Errorf("must lead to a public address; %s is not: %w", addr, ErrRefused)
	}
	if name := strings.ToLower(strings.TrimSuffix(host, ".")); !g.opt.AllowLoopback && (name == "localhost" || strings.HasSuffix(name, ".localhost")) {
		return nil, fmt.Errorf("must lead to a public address; %s is this machine: %w", host, ErrRefused) // RFC 6761 section 6.3.
	}
	u.Fragment, u.RawFragment = "", ""
	return u, nil
}
