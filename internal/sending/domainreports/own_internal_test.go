package domainreports

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// The terms of an SPF record list networks, even if other terms have mistakes. Macros, other modifiers and terms that
// allow no address list nothing.
func TestListed(t *testing.T) {
	dns := resolve.Fake{
		TXTRecords: map[string][]string{"x.test": {"other", "v=spf1 ip4:203.0.113.0/27 include:y.test ~all"},
			"y.test": {"V=SPF1 ip4:203.0.113.40"}},
		AddrRecords: map[string][]netip.Addr{"mx.acme.test": {netip.MustParseAddr("192.0.2.17")},
			"acme.test": {netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}},
		MXRecords: map[string][]resolve.MX{"acme.test": {{Host: "mx.acme.test"}}},
	}
	const x, y = "203.0.113.0/27 ", "203.0.113.40/32 "
	for record, want := range map[string]string{
		"":                              "",
		"ip4:192.0.2.1 -all":            "192.0.2.1/32",
		"ip4:192.0.2.77/24":             "192.0.2.0/24",
		"+IP6:2001:db8::/32":            "2001:db8::/32",
		"ip4:2001:db8::1":               "2001:db8::1/128",
		"ip4:192.0.2 hello ip4:1.2.3.4": "1.2.3.4/32",
		"-ip4:192.0.2.1 ~a ?mx":         "",
		"include:x.test":                x + "x.test " + y + "x.test",
		"+Include:X.test.":              x + "x.test " + y + "x.test",
		"redirect=x.test":               x + y + "y.test",
		"redirect:x.test":               "",
		"-include:x.test":               "",
		"include:%{d}.test a:%{d}":      "",
		"a":                             "192.0.2.9/32 2001:db8::9/128",
		"a/24//64":                      "192.0.2.0/24 2001:db8::/64",
		"a:acme.test/33":                "192.0.2.9/32 2001:db8::9/128",
		"a/x":                           "192.0.2.9/32 2001:db8::9/128",
		"a: mx:":                        "",
		"mx mx:acme.test/28":            "192.0.2.17/32 192.0.2.16/28",
		"a=x mx=x ip4=192.0.2.1":        "",
		"exists:x.test ptr:x.test":      "",
	} {
		dns.TXTRecords["acme.test"] = []string{"v=spf1 " + record}
		s := &Service{p: Deps{DNS: dns}}
		found, complete := s.listed(t.Context(), "acme.test")
		var got []string
		for _, n := range found {
			got = append(got, strings.TrimSpace(fmt.Sprint(n.Prefix, " ", n.include)))
		}
		if strings.Join(got, " ") != want || !complete {
			t.Errorf("%q: %v, %v; want %s", record, got, complete, want)
		}
	}
}
