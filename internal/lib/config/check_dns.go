package config

import (
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// Limits of the settings of the name server.
const (
	maxDNSNames     = 13 // the usual maximum of NS records of a zone
	maxDNSAddresses = 8  // of one name
)

// NameServer is a name server of this installation.
type NameServer struct {
	Name  string
	Addrs []netip.Addr // public addresses; may be empty without dns_zone
}

// NameServers returns the servers of dns_names in the same order, with their addresses from dns_addresses. The settings
// must be valid.
func (c Config) NameServers() (all []NameServer) {
	for _, name := range c.DNSNames {
		s := NameServer{Name: name}
		for _, entry := range c.DNSAddresses {
			of, text, _ := strings.Cut(entry, "=")
			if a, err := netip.ParseAddr(text); of == name && err == nil {
				s.Addrs = append(s.Addrs, a)
			}
		}
		all = append(all, s)
	}
	return all
}

// localPart matches the local parts that an SOA record shows without escapes other than for dots.
var localPart = regexp.MustCompile(`^[A-Za-z0-9_+-]+(\.[A-Za-z0-9_+-]+)*$`)

// ZoneContact returns the address that the SOA records of all zones show: that of dns_contact, or else that of
// notice_from, or else hostmaster at dns_zone.
func (c Config) ZoneContact() string {
	for _, text := range []string{c.DNSContact, c.NoticeFrom} {
		if address, ok := addressOf(text); ok && isContact(address) {
			at := strings.LastIndexByte(address, '@')
			return address[:at+1] + hostName(address[at+1:])
		}
	}
	return "hostmaster@" + c.DNSZone
}

// isContact reports whether a text is an address that an SOA record can show.
func isContact(text string) bool {
	local, host, _ := strings.Cut(text, "@")
	return len(local) <= 63 && localPart.MatchString(local) && isFullName(host)
}

// completeNameServer normalizes the names and addresses of the name server's settings.
func (c *Config) completeNameServer() {
	c.DNSZone = hostName(c.DNSZone)
	for i, name := range c.DNSNames {
		c.DNSNames[i] = hostName(name)
	}
	for i, entry := range c.DNSAddresses {
		name, text, ok := strings.Cut(entry, "=")
		a, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(text), "[]"))
		if ok && err == nil {
			c.DNSAddresses[i] = hostName(strings.TrimSpace(name)) + "=" + a.Unmap().String()
		}
	}
}

// checkNameServer checks the settings of the name server.
func (l *loader) checkNameServer() {
	c := &l.config
	if slices.Contains(c.Roles, "dns") {
		if len(c.DNSListen) == 0 {
			l.wrong("dns_listen", "is empty, but roles has dns; write :53")
		}
		if len(c.DNSNames) == 0 {
			l.wrong("dns_names", "is empty, but roles has dns; list the names of the nodes with this role, such as "+
				"ns1.dns.mail.example.com, ns2.dns.mail.example.com")
		}
	}
	for i, address := range c.DNSListen {
		if !hostPort(address, true) {
			l.wrong("dns_listen", "%q is no address; write :53 or 192.0.2.1:53", address)
		}
		if slices.Contains(c.DNSListen[:i], address) {
			l.wrong("dns_listen", "%s is listed twice", address)
		}
	}
	if len(c.DNSNames) > maxDNSNames {
		l.wrong("dns_names", "has %d names, must have at most %d", len(c.DNSNames), maxDNSNames)
	}
	for i, name := range c.DNSNames {
		if !isFullName(name) {
			l.wrong("dns_names", "%q is not a full host name, such as ns1.dns.mail.example.com", name)
		}
		if slices.Contains(c.DNSNames[:i], name) {
			l.wrong("dns_names", "%s is listed twice", name)
		}
	}
	l.checkNameServerAddresses()
	l.checkDNSZone()
	if c.DNSContact != "" && !isContact(c.DNSContact) {
		l.wrong("dns_contact", "%q is not an email address such as hostmaster@example.com; the part before the @ must consist "+
			"of letters, digits, dots and the characters - _ +", c.DNSContact)
	}
}

// isFullName reports whether a name is a valid host name with at least two labels.
func isFullName(name string) bool {
	return len(name) <= 253 && strings.Contains(hostName(name), ".") && domain.MatchString(hostName(name))
}

// checkNameServerAddresses checks the setting dns_addresses.
func (l *loader) checkNameServerAddresses() {
	c := &l.config
	counts, names := map[string]int{}, map[netip.Addr]string{}
	for i, entry := range c.DNSAddresses {
		name, text, ok := strings.Cut(entry, "=")
		a, err := netip.ParseAddr(strings.Trim(strings.TrimSpace(text), "[]"))
		name = hostName(strings.TrimSpace(name))
		switch {
		case !ok || err != nil || a.Zone() != "":
			l.wrong("dns_addresses", "%q is not name=address; write ns1.dns.mail.example.com=192.0.2.1", entry)
			continue
		case !slices.ContainsFunc(c.DNSNames, func(n string) bool { return hostName(n) == name }):
			l.wrong("dns_addresses", "%s is not in dns_names", name)
		case !c.AllowLoopback && a.Unmap().IsLoopback():
			l.wrong("dns_addresses", "%s is this machine, so others cannot reach %s; give it a public address, or set "+
				"allow_loopback = true to try it on one machine, as `postrider dev` does", a, name)
		case !c.AllowLoopback && !isPublicAddress(a):
			l.wrong("dns_addresses", "%s is not a public address, so others cannot reach %s", a, name)
		case slices.Contains(c.DNSAddresses[:i], entry):
			l.wrong("dns_addresses", "%s is listed twice", entry)
		}
		if other := names[a.Unmap()]; other != "" && other != name {
			l.wrong("dns_addresses", "%s and %s have the same address, so both would fail with one machine; give each name a "+
				"machine of its own", other, name)
		}
		names[a.Unmap()] = name
		if counts[name]++; counts[name] == maxDNSAddresses+1 {
			l.wrong("dns_addresses", "%s has more than %d addresses", name, maxDNSAddresses)
		}
	}
	if c.DNSZone == "" {
		return
	}
	for _, name := range c.DNSNames {
		if counts[hostName(name)] == 0 {
			l.wrong("dns_addresses", "has no address of %s; dns_zone needs one of each name in dns_names", name)
		}
	}
}

// isPublicAddress reports whether an address is a global unicast address outside private networks.
func isPublicAddress(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsGlobalUnicast() && !a.IsPrivate()
}

// checkDNSZone checks the setting dns_zone.
func (l *loader) checkDNSZone() {
	c := &l.config
	zone := hostName(c.DNSZone)
	if zone == "" {
		return
	}
	if !isFullName(zone) {
		l.wrong("dns_zone", "%q is not a full domain name, such as dns.mail.example.com", c.DNSZone)
		return
	}
	// A record in the zone may have up to two random labels before the zone's name.
	if len(zone) > maxDNSZone {
		l.wrong("dns_zone", "%q is longer than %d bytes", c.DNSZone, maxDNSZone)
	}
	if len(c.DNSNames) == 0 {
		l.wrong("dns_zone", "needs dns_names, the name servers of the zone")
	}
	for _, host := range l.ownNames() {
		if host.name == zone || strings.HasSuffix(host.name, "."+zone) {
			l.wrong("dns_zone", "contains %s (%s), but the name server would answer that this name does not exist; choose a "+
				"zone for nothing else", host.name, host.setting)
		}
	}
	if m := hostName(c.ManagedDomain); m != "" && strings.HasSuffix(zone, "."+m) {
		l.wrong("dns_zone", "lies in managed_domain, whose names belong to teams; choose a zone elsewhere")
	}
}

// maxDNSZone is the maximum length of dns_zone, which leaves space for the labels before it.
const maxDNSZone = 200

type ownName struct{ setting, name string }

// ownNames lists the host names of this installation with the settings that contain them.
func (l *loader) ownNames() (all []ownName) {
	c := &l.config
	add := func(setting, name string) {
		if name = hostName(name); name != "" {
			all = append(all, ownName{setting, name})
		}
	}
	add("hostname", c.Hostname)
	hosts := func(prefix string, r Region) {
		add(prefix+"bounce_host", r.BounceHost)
		add(prefix+"inbound_host", r.InboundHost)
		add(prefix+"spf_include", r.SPFInclude)
		add(prefix+"tracking_host", r.TrackingHost)
	}
	hosts("", Region{c.BounceHost, c.InboundHost, c.SPFInclude, c.TrackingHost})
	for _, label := range slices.Sorted(maps.Keys(c.Regions)) {
		hosts("regions."+label+".", c.Regions[label])
	}
	for _, s := range [][2]string{{"public_url", c.PublicURL}, {"tracking_url", c.TrackingURL}} {
		if u, err := url.Parse(s[1]); err == nil {
			add(s[0], u.Hostname())
		}
	}
	add("report_host", c.ReportHost)
	add("domain_connect_key_domain", c.DomainConnectKeyDomain)
	add("managed_domain", c.ManagedDomain)
	add("acme_dns_zone", c.ACMEDNSZone)
	return slices.CompactFunc(all, func(a, b ownName) bool { return a.name == b.name })
}
