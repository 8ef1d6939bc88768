package nameserver_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/nameserver"
)

// sample returns a zone with the records of a sending domain, an alias, wildcards, and a name that only exists because
// of longer names.
func sample() nameserver.Zone {
	return nameserver.Zone{Name: "mail.acme.example", Serial: 7,
		NS: []string{"a.ns1.dns.host.example", "a.ns2.dns.host.example"}, Mailbox: "postmaster.host.example",
		Records: []nameserver.Record{
			{Name: "mail.acme.example", Type: "MX", TTL: 300, Value: "10 in.host.example"},
			{Name: "mail.acme.example", Type: "TXT", TTL: 300, Value: `v=spf1 include:host.example ~all`},
			{Name: "s1._domainkey.mail.acme.example", Type: "TXT", TTL: 300, Value: "v=DKIM1; k=rsa; p=" +
				strings.Repeat("A", 392)},
			{Name: "odd.mail.acme.example", Type: "TXT", TTL: 60, Value: `say "a\b" and é; twice`},
			{Name: "v4.mail.acme.example", Type: "A", TTL: 60, Value: "192.0.2.1"},
			{Name: "v4.mail.acme.example", Type: "A", TTL: 60, Value: "192.0.2.2"},
			{Name: "v6.mail.acme.example", Type: "AAAA", TTL: 60, Value: "2001:db8::1"},
			{Name: "alias.mail.acme.example", Type: "CNAME", TTL: 60, Value: "second.mail.acme.example"},
			{Name: "second.mail.acme.example", Type: "CNAME", TTL: 60, Value: "v4.mail.acme.example"},
			{Name: "dangling.mail.acme.example", Type: "CNAME", TTL: 60, Value: "none.mail.acme.example"},
			{Name: "away.mail.acme.example", Type: "CNAME", TTL: 60, Value: "tracking.host.example"},
			{Name: "loop1.mail.acme.example", Type: "CNAME", TTL: 60, Value: "loop2.mail.acme.example"},
			{Name: "loop2.mail.acme.example", Type: "CNAME", TTL: 60, Value: "loop1.mail.acme.example"},
			{Name: "*.wild.mail.acme.example", Type: "TXT", TTL: 60, Value: "from the wildcard"},
			{Name: "host.wild.mail.acme.example", Type: "A", TTL: 60, Value: "192.0.2.3"},
			{Name: "deep.below.wild.mail.acme.example", Type: "A", TTL: 60, Value: "192.0.2.4"},
			{Name: "*.to.mail.acme.example", Type: "CNAME", TTL: 60, Value: "v4.mail.acme.example"},
			{Name: "_25._tcp.in.mail.acme.example", Type: "TLSA", TTL: 60, Value: "3 1 1 " + strings.Repeat("ab", 32)},
			{Name: "mail.acme.example", Type: "CAA", TTL: 60, Value: `0 issue "ca.example; validationmethods=dns-01"`},
			{Name: "null.mail.acme.example", Type: "MX", TTL: 60, Value: "0 ."},
		}}
}

func compile(t testing.TB, z nameserver.Zone) *nameserver.Compiled {
	t.Helper()
	c, err := nameserver.Compile(z)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestCompileRefuses(t *testing.T) {
	t.Parallel()
	record := func(name, typ, value string) func(*nameserver.Zone) {
		return func(z *nameserver.Zone) {
			z.Records = append(z.Records, nameserver.Record{Name: name, Type: typ, TTL: 60, Value: value})
		}
	}
	const n = "x.mail.acme.example"
	for _, c := range []struct {
		name   string
		change func(*nameserver.Zone)
		want   string
	}{
		{"no name", func(z *nameserver.Zone) { z.Name = "" }, "not a name"},
		{"name with a dot", func(z *nameserver.Zone) { z.Name += "." }, "label that is empty"},
		{"upper case", func(z *nameserver.Zone) { z.Name = "Mail.acme.example" }, "lower-case"},
		{"no servers", func(z *nameserver.Zone) { z.NS = nil }, "has 0 name servers"},
		{"too many servers", func(z *nameserver.Zone) { z.NS = make([]string, 14) }, "has 14 name servers"},
		{"server twice", func(z *nameserver.Zone) { z.NS[1] = z.NS[0] }, "listed twice"},
		{"bad server", func(z *nameserver.Zone) { z.NS[1] = "a b" }, "name server"},
		{"mailbox", func(z *nameserver.Zone) { z.Mailbox = "a@b.example" }, "mailbox"},
		{"elsewhere", record("mail.other.example", "A", "192.0.2.1"), "not in the zone"},
		{"sibling", record("xmail.acme.example", "A", "192.0.2.1"), "not in the zone"},
		{"long label", record(strings.Repeat("a", 64)+"."+n, "A", "192.0.2.1"), "longer than 63"},
		{"long name", record(strings.Repeat("abcdefg.", 30)+n, "A", "192.0.2.1"), "253"},
		{"star inside", record("a.*."+n, "A", "192.0.2.1"), "lower-case letters"},
		{"escape", record(`a\.b.`+n, "A", "192.0.2.1"), "lower-case letters"},
		{"type", record(n, "NS", "ns.other.example"), "not supported"},
		{"soa", record("mail.acme.example", "SOA", "x"), "not supported"},
		{"unknown type", record(n, "XYZ", "x"), "not supported"},
		{"A", record(n, "A", "2001:db8::1"), "IPv4"},
		{"AAAA", record(n, "AAAA", "192.0.2.1"), "IPv6"},
		{"AAAA with zone", record(n, "AAAA", "fe80::1%eth0"), "IPv6"},
		{"CNAME", record(n, "CNAME", "a..b"), "label that is empty"},
		{"MX", record(n, "MX", "in.host.example"), "preference"},
		{"MX number", record(n, "MX", "70000 in.host.example"), "preference"},
		{"MX name", record(n, "MX", "10 in host"), "lower-case"},
		{"TXT empty", record(n, "TXT", ""), "0 bytes"},
		{"TXT long", record(n, "TXT", strings.Repeat("a", 4097)), "4097 bytes"},
		{"TXT line", record(n, "TXT", "a\nb"), "control character"},
		{"TLSA", record(n, "TLSA", "3 1 1"), "TLSA"},
		{"TLSA number", record(n, "TLSA", "3 1 256 ab"), "at most 255"},
		{"TLSA digest", record(n, "TLSA", "3 1 1 xyz"), "hexadecimal"},
		{"CAA", record(n, "CAA", "issue ca.example"), "CAA"},
		{"CAA tag", record(n, "CAA", "0 is-sue ca.example"), "tag"},
		{"CAA value", record(n, "CAA", `0 issue a"b`), "printable"},
		{"CNAME beside", record("v4.mail.acme.example", "CNAME", "a.example"), "no other records"},
		{"beside CNAME", record("alias.mail.acme.example", "A", "192.0.2.1"), "no other records"},
		{"CNAME at the apex", record("mail.acme.example", "CNAME", "a.example"), "no other records"},
		{"two CNAMEs", record("alias.mail.acme.example", "CNAME", "a.example"), "two CNAME"},
		{"twice", record("v6.mail.acme.example", "AAAA", "2001:db8:0::1"), "listed twice"},
		{"TTL of one set", func(z *nameserver.Zone) {
			z.Records = append(z.Records, nameserver.Record{Name: "v6.mail.acme.example", Type: "AAAA", TTL: 61,
				Value: "2001:db8::2"})
		}, "different TTLs"},
		{"no TTL", func(z *nameserver.Zone) { z.Records[0].TTL = 0 }, "TTL 0"},
		{"long TTL", func(z *nameserver.Zone) { z.Records[0].TTL = 1 << 30 }, "TTL"},
		{"large set", func(z *nameserver.Zone) {
			for _, c := range "abcdef" {
				record(n, "TXT", strings.Repeat(string(c), 4000))(z)
			}
		}, "more than 16384 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			z := sample()
			c.change(&z)
			if _, err := nameserver.Compile(z); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
	if _, err := nameserver.Compile(sample()); err != nil {
		t.Errorf("the sample: %v", err)
	}
}

// A shared zone keeps its valid records.
func TestCompileShared(t *testing.T) {
	t.Parallel()
	z := sample()
	z.Records = append(z.Records, nameserver.Record{Name: "bad.mail.acme.example", Type: "A", TTL: 60, Value: "x"})
	c, dropped, err := nameserver.CompileShared(z)
	if err != nil || len(dropped) != 1 || !strings.Contains(dropped[0].Error(), "bad.mail.acme.example") {
		t.Fatalf("dropped %v, error %v", dropped, err)
	}
	if got, want := c.Names(), compile(t, sample()).Names(); got != want {
		t.Errorf("%d names, want %d", got, want)
	}
}

func TestFingerprint(t *testing.T) {
	t.Parallel()
	a, b := sample(), sample()
	if a.Fingerprint() != b.Fingerprint() {
		t.Error("equal zones have different fingerprints")
	}
	for name, change := range map[string]func(*nameserver.Zone){
		"serial":  func(z *nameserver.Zone) { z.Serial++ },
		"NS":      func(z *nameserver.Zone) { z.NS = z.NS[:1] },
		"mailbox": func(z *nameserver.Zone) { z.Mailbox = "x.example" },
		"TTL":     func(z *nameserver.Zone) { z.Records[0].TTL++ },
		"value":   func(z *nameserver.Zone) { z.Records[3].Value += "." },
		"less":    func(z *nameserver.Zone) { z.Records = z.Records[1:] },
		"moved": func(z *nameserver.Zone) {
			z.Records[0].Name, z.Records[0].Type = z.Records[0].Name+z.Records[0].Type[:1], z.Records[0].Type[1:]
		},
	} {
		z := sample()
		change(&z)
		if z.Fingerprint() == a.Fingerprint() {
			t.Errorf("%s: the fingerprint is the same", name)
		}
	}
}

func TestSetRefusesDuplicates(t *testing.T) {
	t.Parallel()
	z := compile(t, sample())
	other := sample()
	other.Serial = 8
	s, err := nameserver.NewSet([]*nameserver.Compiled{z, compile(t, other)})
	if err == nil || s.Len() != 1 || s.Zone("mail.acme.example").Serial() != 7 {
		t.Errorf("error %v, %d zones", err, s.Len())
	}
}
