package resolve

import (
	"context"
	"errors"
	"net"
	"net/netip"
)

// NetForm adapts a Resolver to libraries that expect a net.Resolver. The methods of NetForm have the same signatures as
// those of net.Resolver, and the errors are of type *net.DNSError with IsNotFound or IsTemporary set.
type NetForm struct{ Resolver Resolver }

// LookupTXT returns one string for each TXT record at name.
func (n NetForm) LookupTXT(ctx context.Context, name string) ([]string, error) {
	records, err := n.Resolver.TXT(ctx, name)
	return records, netError(name, err)
}

// LookupMX returns the mail exchangers for name, in the order of the DNS response. For a null MX, LookupMX returns the
// host ".".
func (n NetForm) LookupMX(ctx context.Context, name string) ([]*net.MX, error) {
	records, err := n.Resolver.MX(ctx, name)
	if err != nil {
		return nil, netError(name, err)
	}
	out := make([]*net.MX, len(records))
	for i, r := range records {
		out[i] = &net.MX{Host: r.Host + ".", Pref: r.Pref}
	}
	return out, nil
}

// LookupIPAddr returns the IPv4 and IPv6 addresses of host.
func (n NetForm) LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error) {
	addrs, err := n.Resolver.Addrs(ctx, host)
	if err != nil {
		return nil, netError(host, err)
	}
	out := make([]net.IPAddr, len(addrs))
	for i, a := range addrs {
		out[i] = net.IPAddr{IP: a.AsSlice(), Zone: a.Zone()}
	}
	return out, nil
}

// LookupAddr returns the reverse DNS names of addr, each with a trailing dot.
func (n NetForm) LookupAddr(ctx context.Context, addr string) ([]string, error) {
	parsed, err := netip.ParseAddr(addr)
	if err != nil {
		return nil, &net.DNSError{Err: err.Error(), Name: addr}
	}
	names, err := n.Resolver.PTR(ctx, parsed)
	if err != nil {
		return nil, netError(addr, err)
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + "."
	}
	return out, nil
}

func netError(name string, err error) error {
	if err == nil {
		return nil
	}
	missing := errors.Is(err, ErrNotFound)
	return &net.DNSError{UnwrapErr: err, Err: err.Error(), Name: name, IsNotFound: missing, IsTemporary: !missing}
}
