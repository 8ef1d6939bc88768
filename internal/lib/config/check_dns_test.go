package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// nameServer returns the flags of a node with the role dns, with some of them replaced.
func nameServer(replaced ...string) []string {
	all := []string{"--hostname=mail.example.com", "--roles=dns", "--dns-names=NS1.dns.example.com., ns2.dns.example.com",
		"--dns-zone=Dns.example.com.", "--dns-addresses=ns1.dns.Example.com=203.0.113.1,ns2.dns.example.com=203.0.113.2," +
			"ns1.dns.example.com=[2001:DB8::1]"}
	for _, r := range replaced {
		name, _, _ := strings.Cut(r, "=")
		all = slices.DeleteFunc(all, func(a string) bool { return strings.HasPrefix(a, name+"=") })
	}
	return append(all, replaced...)
}

func TestNameServer(t *testing.T) {
	t.Parallel()
	c := load(t, source("", nil, nameServer()...))
	if c.DNSZone != "dns.example.com" || !slices.Equal(c.DNSListen, []string{":53"}) || c.DNSRateLimit != 20 {
		t.Errorf("zone %q, listen %q, rate %d", c.DNSZone, c.DNSListen, c.DNSRateLimit)
	}
	if got, want := fmt.Sprint(c.NameServers()), "[{ns1.dns.example.com [203.0.113.1 2001:db8::1]} "+
		"{ns2.dns.example.com [203.0.113.2]}]"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// A node without the role needs the names and the zone too, for the records that it shows.
	c = load(t, source("", nil, nameServer("--roles=api")...))
	if len(c.NameServers()) != 2 {
		t.Errorf("%v", c.NameServers())
	}
	// Names without a zone need no addresses.
	load(t, source("", nil, nameServer("--dns-zone=", "--dns-addresses=")...))
}

// The contact of the zones is dns_contact, or else the address of notice_from, or else hostmaster at dns_zone.
func TestZoneContact(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		want string
		args []string
	}{
		{"hostmaster@dns.example.com", nil},
		{"notices@example.com", []string{"--notice-from=Postrider <notices@Example.com>"}},
		{"hostmaster@dns.example.com", []string{"--notice-from=no!tices@example.com"}}, // an SOA record cannot show it
		{"ada.l@example.com", []string{"--notice-from=notices@example.com", "--dns-contact=ada.l@example.com"}},
	} {
		if got := load(t, source("", nil, nameServer(c.args...)...)).ZoneContact(); got != c.want {
			t.Errorf("%q: %s, want %s", c.args, got, c.want)
		}
	}
}

func TestNameServerProblems(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"no listener", []string{"--dns-listen="}, "dns_listen (--dns-listen): is empty"},
		{"listener", []string{"--dns-listen=53"}, `"53" is no address`},
		{"listener twice", []string{"--dns-listen=:53,:53"}, ":53 is listed twice"},
		{"no names", []string{"--dns-names="}, "dns_names (--dns-names): is empty"},
		{"short name", []string{"--dns-names=ns1,ns2.dns.example.com"}, `"ns1" is not a full host name`},
		{"name", []string{"--dns-names=ns1.a b"}, `"ns1.a b" is not a full host name`},
		{"name twice", []string{"--dns-names=ns1.dns.example.com,NS1.dns.example.com"}, "ns1.dns.example.com is listed twice"},
		{"many names", []string{"--dns-names=" + strings.Repeat("ns1.dns.example.com,", 14)}, "has 14 names"},
		{"address", []string{"--dns-addresses=203.0.113.1"}, "is not name=address"},
		{"no address", []string{"--dns-addresses=ns1.dns.example.com=x"}, "is not name=address"},
		{"other name", []string{"--dns-addresses=ns3.dns.example.com=203.0.113.1"}, "ns3.dns.example.com is not in dns_names"},
		{"missing address", []string{"--dns-addresses=ns1.dns.example.com=203.0.113.1"},
			"has no address of ns2.dns.example.com"},
		{"private address", []string{"--dns-addresses=ns1.dns.example.com=10.0.0.1"}, "10.0.0.1 is not a public address"},
		{"loopback address", []string{"--dns-addresses=ns1.dns.example.com=127.0.0.1"}, "127.0.0.1 is this machine"},
		{"link-local address", []string{"--dns-addresses=ns1.dns.example.com=fe80::1"}, "fe80::1 is not a public address"},
		{"zone of an address", []string{"--dns-addresses=ns1.dns.example.com=fe80::1%eth0"}, "is not name=address"},
		{"address twice", []string{"--dns-addresses=ns1.dns.example.com=203.0.113.1,NS1.dns.example.com=203.0.113.1"},
			"ns1.dns.example.com=203.0.113.1 is listed twice"},
		{"short zone", []string{"--dns-zone=dns"}, `"dns" is not a full domain name`},
		{"long zone", []string{"--dns-zone=" + strings.Repeat("abcdefghi.", 20) + "example"}, "is longer than 200 bytes"},
		{"zone without names", []string{"--roles=api", "--dns-names=", "--dns-addresses="}, "needs dns_names"},
		{"zone with the host", []string{"--dns-zone=example.com"}, "contains mail.example.com (hostname)"},
		{"zone is a host", []string{"--bounce-host=dns.example.com"}, "contains dns.example.com (bounce_host)"},
		{"zone with a page", []string{"--public-url=https://www.dns.example.com"}, "contains www.dns.example.com (tracking_host)"},
		{"shared address", []string{"--dns-addresses=ns1.dns.example.com=203.0.113.1,ns2.dns.example.com=203.0.113.1"},
			"ns1.dns.example.com and ns2.dns.example.com have the same address"},
		{"zone with the host of reports", []string{"--report-host=reports.dns.example.com"},
			"contains reports.dns.example.com (report_host)"},
		{"zone with keys", []string{"--domain-connect-key-domain=keys.dns.example.com"},
			"contains keys.dns.example.com (domain_connect_key_domain)"},
		{"zone of teams", []string{"--managed-domain=example.com"}, "lies in managed_domain"},
		{"rate", []string{"--dns-rate-limit=-1"}, "dns_rate_limit (--dns-rate-limit): is -1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			_, err := Load(source("", nil, nameServer(c.args...)...))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Load: %v\nwant an error with %q", err, c.want)
			}
		})
	}
	load(t, source("", nil, nameServer("--allow-loopback", "--dns-addresses=ns1.dns.example.com=127.0.0.1,"+
		"ns2.dns.example.com=127.0.0.2")...))
}
