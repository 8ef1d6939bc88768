package doctor_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node/doctor"
)

// withNameServers returns the facts about an installation with two name servers without problems.
func withNameServers() doctor.Facts {
	f := healthy()
	f.Config.DNSZone = "dns.example.com"
	f.Config.DNSNames = []string{"ns1.dns.example.com", "ns2.dns.example.com"}
	n := &doctor.NameServers{Zone: f.Config.DNSZone, Delegated: []string{"ns1.dns.example.com", "ns2.dns.example.com"}}
	for i, name := range f.Config.DNSNames {
		a := netip.AddrFrom4([4]byte{203, 0, 113, byte(i + 1)})
		good := doctor.NameAnswer{Authoritative: true, Serial: 7}
		n.Servers = append(n.Servers, doctor.NameServer{Name: name, Addr: a, UDP: good, TCP: good, Configured: true, InDNS: true})
		f.Config.DNSAddresses = append(f.Config.DNSAddresses, name+"="+a.String())
	}
	f.NameServers = n
	return f
}

func TestNameServers(t *testing.T) {
	t.Parallel()
	silent := doctor.NameAnswer{Err: errors.New("no answer in time")}
	for _, c := range []struct {
		name   string
		change func(f *doctor.Facts)
		want   string // the findings that are not ok: id, status, a part of the meaning and of the advice
	}{
		{"healthy", func(*doctor.Facts) {}, ""},
		{"no delegation", func(f *doctor.Facts) { f.NameServers.Delegated, f.NameServers.Err = nil, errMissing },
			"nameserver.delegation failure does not delegate|Add NS records for ns1.dns.example.com, ns2"},
		{"no answer about the delegation", func(f *doctor.Facts) {
			f.NameServers.Delegated, f.NameServers.Err = nil, errSilent
		}, "nameserver.delegation not_checked No name server of the parent zone answered|dns.servers"},
		{"other delegation", func(f *doctor.Facts) { f.NameServers.Delegated[1] = "ns3.example.com" },
			"nameserver.delegation failure to ns1.dns.example.com, ns3.example.com|Correct the NS records"},
		{"one server", func(f *doctor.Facts) {
			f.Config.DNSNames, f.NameServers.Delegated = f.Config.DNSNames[:1], f.NameServers.Delegated[:1]
		}, "nameserver.delegation warning Only one|second"},
		{"silent", func(f *doctor.Facts) { f.NameServers.Servers[0].UDP, f.NameServers.Servers[0].TCP = silent, silent },
			"nameserver.answers failure over UDP and TCP: no answer|open port 53"},
		{"no TCP", func(f *doctor.Facts) { f.NameServers.Servers[1].TCP = silent },
			"nameserver.answers failure over TCP|UDP and TCP in the firewall"},
		{"other server", func(f *doctor.Facts) { f.NameServers.Servers[0].UDP = doctor.NameAnswer{} },
			"nameserver.answers failure not for dns.example.com|same dns_zone"},
		{"address not in DNS", func(f *doctor.Facts) { f.NameServers.Servers[0].InDNS = false },
			"nameserver.answers warning does not lead to it|Correct dns_addresses"},
		{"address not in the settings", func(f *doctor.Facts) { f.NameServers.Servers[0].Configured = false },
			"nameserver.answers warning not in dns_addresses|Add it"},
		{"open resolver", func(f *doctor.Facts) { f.NameServers.Servers[0].Recursion.Resolved = true },
			"nameserver.recursion failure open resolver|Stop the other server"},
		{"serials", func(f *doctor.Facts) { f.NameServers.Servers[0].UDP.Serial = 6 },
			"nameserver.serials warning different versions|lasts for more than a minute"},
	} {
		f := withNameServers()
		c.change(&f)
		var bad []doctor.Finding
		passed := map[string]bool{}
		for _, x := range doctor.Check(f) {
			if x.Status == doctor.OK {
				passed[x.ID] = true
			} else {
				bad = append(bad, x)
			}
		}
		if c.want == "" {
			for _, id := range []string{"nameserver.delegation", "nameserver.answers", "nameserver.recursion", "nameserver.serials",
				"dmarc.reports"} {
				if !passed[id] {
					t.Errorf("%s: no finding %s", c.name, id)
				}
			}
			if len(bad) > 0 {
				t.Errorf("%s: %+v", c.name, bad)
			}
			continue
		}
		head, advice, _ := strings.Cut(c.want, "|")
		fields := strings.SplitN(head, " ", 3)
		if len(bad) != 1 || bad[0].ID != fields[0] || string(bad[0].Status) != fields[1] ||
			!strings.Contains(bad[0].Meaning, fields[2]) || !strings.Contains(bad[0].Advice, advice) {
			t.Errorf("%s: findings %s\nwant %s", c.name, fmt.Sprintf("%+v", bad), c.want)
		}
	}
}
