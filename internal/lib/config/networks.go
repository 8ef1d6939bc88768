package config

import "net/netip"

// loopback lists the networks of the machine itself.
var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// checkNetworks checks the networks that users may reach and those that they may not.
func (l *loader) checkNetworks() {
	c := &l.config
	for _, list := range []struct {
		key string
		all []netip.Prefix
	}{{"allow_networks", c.AllowNetworks}, {"deny_networks", c.DenyNetworks}} {
		for _, p := range list.all {
			switch own := p.Masked(); {
			case p.Addr().Is4In6():
				l.wrong(list.key, "%s is an IPv4 network written as IPv6; write it as 10.8.0.0/16", p)
			case p != own:
				l.wrong(list.key, "%s names an address in a network; write %s for the network, or %s/%d for the address", p, own,
					p.Addr(), p.Addr().BitLen())
			}
		}
	}
	for _, p := range c.AllowNetworks {
		for _, own := range loopback {
			if p.Overlaps(own) {
				l.wrong("allow_networks", "%s contains addresses of this machine, where teams could reach its other programs; "+
					"name smaller networks, or give the service an address in a private network", p)
			}
		}
	}
}
