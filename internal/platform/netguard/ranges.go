package netguard

import (
	"net/netip"
	"slices"
)

// refused4 lists the IPv4 ranges that are not public according to the registry of special-purpose addresses (RFC 6890).
var refused4 = prefixes(
	"0.0.0.0/8",        // "this network"; a connection to 0.0.0.0 reaches this machine
	"10.0.0.0/8",       // private (RFC 1918)
	"100.64.0.0/10",    // carriers' shared address space (RFC 6598); also one cloud's metadata service
	"127.0.0.0/8",      // loopback
	"168.63.129.16/32", // one cloud's host agent, which uses a public address
	"169.254.0.0/16",   // link-local (RFC 3927); also most clouds' metadata services
	"172.16.0.0/12",    // private
	"192.0.0.0/24",     // protocol assignments
	"192.0.2.0/24",     // documentation (RFC 5737)
	"192.88.99.0/24",   // 6to4 relays (RFC 7526)
	"192.168.0.0/16",   // private
	"198.18.0.0/15",    // benchmarking (RFC 2544)
	"198.51.100.0/24",  // documentation
	"203.0.113.0/24",   // documentation
	"224.0.0.0/4",      // multicast
	"240.0.0.0/4",      // reserved; broadcast
)

// global6 contains all allocated public IPv6 addresses (RFC 4291 section 2.4). All other IPv6 addresses are refused:
// ::, ::1, IPv4-compatible ::/96, IPv4-translated ::ffff:0:0:0/96, local translation 64:ff9b:1::/48 (RFC 8215), discard
// 100::/64, segment routing 5f00::/16, unique local fc00::/7, link-local fe80::/10, site-local fec0::/10, multicast.
var global6 = netip.MustParsePrefix("2000::/3")

// refused6 lists the ranges within global6 that are not public.
var refused6 = prefixes(
	"2001::/23",     // protocol assignments: Teredo 2001::/32, benchmarking 2001:2::/48, ORCHID
	"2001:db8::/32", // documentation (RFC 3849)
	"2002::/16",     // 6to4 (RFC 3056), obsolete; leads to the embedded IPv4 address
	"3fff::/20",     // documentation (RFC 9637)
)

// nat64 is the well-known prefix for NAT64 translators (RFC 6052), through which hosts without IPv4 reach public IPv4
// addresses.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Allowed reports whether connections to an address that a user supplies are allowed, because the address is public or
// the options or the operator's networks allow it. If an IPv6 address embeds an IPv4 address, the embedded address must
// also be public.
func (g *Guard) Allowed(addr netip.Addr) bool {
	if !addr.IsValid() {
		return false
	}
	addr = addr.Unmap()
	bare := addr.WithZone("")
	n := g.networks.Load()
	if contains(n.Deny, bare) || nat64.Contains(bare) && contains(n.Deny, tail4(bare)) {
		return false
	}
	if contains(g.opt.AllowPrefixes, bare) || contains(n.Allow, bare) && addr.Zone() == "" && mayAllow(bare) {
		return true
	}
	if g.opt.AllowLoopback && bare.IsLoopback() {
		return true
	}
	// Only link-local addresses have a zone.
	return addr.Zone() == "" && public(addr)
}

func public(addr netip.Addr) bool {
	within := func(p netip.Prefix) bool { return p.Contains(addr) }
	if addr.Is4() {
		return !slices.ContainsFunc(refused4, within)
	}
	if nat64.Contains(addr) {
		return public(tail4(addr))
	}
	if !global6.Contains(addr) || slices.ContainsFunc(refused6, within) {
		return false
	}
	return !isISATAP(addr) || public(tail4(addr))
}

// isISATAP reports whether an IPv6 address embeds an IPv4 address as RFC 5214 section 6.1 describes.
func isISATAP(addr netip.Addr) bool {
	b := addr.As16()
	return b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe
}

// tail4 returns the IPv4 address in the last four bytes of an IPv6 address.
func tail4(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:]))
}
