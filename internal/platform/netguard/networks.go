package netguard

import (
	"fmt"
	"net/netip"
	"slices"
)

// Networks are the operator's exceptions to the rule that users may reach all public addresses and no others. An
// address in both lists is refused.
type Networks struct {
	// Allow lists networks that are not public and that users may reach, such as the services of a cluster.
	Allow []netip.Prefix
	// Deny lists networks that users must not reach although their addresses are public.
	Deny []netip.Prefix
}

// unspecified lists the addresses with which a connection reaches this machine.
var unspecified = prefixes("0.0.0.0/8", "::/128")

// metadata lists the addresses at which clouds give programs their credentials. Users never reach them, even if the
// operator allows a network that contains them.
var metadata = prefixes(
	"169.254.0.0/16",
	"fe80::/10",
	"100.100.100.200/32",
	"168.63.129.16/32",
	"192.0.0.192/32",
	"fd00:ec2::/32",
	"fd20:ce::254/128",
)

// IsMetadata reports whether a network contains only addresses at which clouds give programs their credentials.
// Allowing such a network has no effect.
func IsMetadata(p netip.Prefix) bool {
	return slices.ContainsFunc(metadata, func(m netip.Prefix) bool {
		return m.Bits() <= p.Bits() && m.Contains(p.Addr())
	})
}

// SetNetworks replaces the operator's exceptions. Connections that are open stay open.
func (g *Guard) SetNetworks(n Networks) {
	g.networks.Store(&Networks{Allow: slices.Clone(n.Allow), Deny: slices.Clone(n.Deny)})
}

// mayAllow reports whether the operator can allow an address. Translators and tunnels lead an IPv6 address to the IPv4
// address in it, so the operator must be able to allow that one, too.
func mayAllow(addr netip.Addr) bool {
	if contains(metadata, addr) || contains(unspecified, addr) {
		return false
	}
	return addr.Is4() || !nat64.Contains(addr) && !isISATAP(addr) || mayAllow(tail4(addr))
}

func contains(all []netip.Prefix, addr netip.Addr) bool {
	for _, p := range all {
		if p.Contains(addr) {
			return true
		}
	}
	return false
}

// expected says which addresses users may reach instead of a refused one.
func (g *Guard) expected(refused netip.Addr) string {
	n := g.networks.Load()
	switch {
	case contains(n.Deny, refused.Unmap().WithZone("")):
		return fmt.Sprintf("another address; the operator of this installation denies the network of %s", refused)
	case len(n.Allow) > 0:
		return fmt.Sprintf("a public address, or to one that the operator of this installation allows; %s is neither",
			refused)
	}
	return fmt.Sprintf("a public address; %s is not", refused)
}
