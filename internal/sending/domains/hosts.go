package domains

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/lib/fault"
)

// checkHosts returns a fault if a record that d needs, and that the domain before did not need, would contain a host
// name that no other server can look up. Users would publish a record that cannot work. The fault names the setting,
// because only the operator can mend it. Without Config.CheckHosts, checkHosts accepts every host.
func (c *Config) checkHosts(d *Domain, before Domain) error {
	if !c.CheckHosts {
		return nil
	}
	r := c.region(d.Region)
	for _, of := range []struct {
		needed        bool
		host, setting string
	}{
		{d.Sending && !before.Sending, r.BounceHost, "bounce_host"},
		{d.Sending && !before.Sending, r.SPFInclude, "spf_include"},
		{d.Receiving && !before.Receiving, r.InboundHost, "inbound_host"},
		{d.TrackingSubdomain != "" && d.TrackingSubdomain != before.TrackingSubdomain, r.TrackingHost, "tracking_host"},
	} {
		if !of.needed || IsPublicHost(of.host) {
			continue
		}
		standard := "hostname"
		if of.setting == "tracking_host" {
			standard = "public_url"
		}
		return fault.Invalidf("", "This installation cannot tell which DNS records the domain needs: they would name the "+
			"host %q, which other servers cannot look up. Ask the operator to set `%s`, whose default comes from `%s`, to a "+
			"full host name such as mail.example.com.", of.host, of.setting, standard)
	}
	return nil
}

// privateSuffixes end names that the public DNS never has (RFC 6761, RFC 6762, RFC 8375, and the reserved name
// internal). Some clouds give their machines such names.
var privateSuffixes = []string{".localhost", ".localdomain", ".local", ".internal", ".home.arpa", ".lan", ".invalid"}

// IsPublicHost reports whether other servers may be able to look a host up: it has a dot, is no address, and does not
// end in a name that is reserved for private networks.
func IsPublicHost(host string) bool {
	_, err := netip.ParseAddr(host)
	return err != nil && strings.Contains(host, ".") &&
		!slices.ContainsFunc(privateSuffixes, func(s string) bool { return strings.HasSuffix(host, s) })
}
