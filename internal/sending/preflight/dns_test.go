package preflight

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
)

func TestSPF(t *testing.T) {
	t.Parallel()
	const host = "send.acme.org"
	chain := func(n int) map[string][]string { // an SPF record whose includes need n look-ups
		z := map[string][]string{host: {"v=spf1 include:i1.net -all"}}
		for i := 1; i < n; i++ {
			z[fmt.Sprintf("i%d.net", i)] = []string{fmt.Sprintf("v=spf1 include:i%d.net -all", i+1)}
		}
		z[fmt.Sprintf("i%d.net", n)] = []string{"v=spf1 -all"}
		return z
	}
	one := func(record string) map[string][]string {
		return map[string][]string{host: {record}, "x.net": {"v=spf1 ip4:192.0.2.1 -all"}, "any.net": {"v=spf1 +all"},
			"two.net": {"v=spf1 -all", "v=spf1 ~all"}, "loop.net": {"v=spf1 include:send.acme.org -all"}}
	}
	for _, c := range []struct {
		name  string
		zone  map[string][]string
		level Level
		shows string
	}{
		{"none", map[string][]string{host: {"v=spf10 -all", "other"}}, Problem, "no SPF record"},
		{"several", map[string][]string{host: {"v=spf1 -all", "V=SPF1 ~all"}}, Problem, "2 SPF records"},
		{"empty", one("v=spf1"), Pass, "0 of the 10"},
		{"addresses", one("v=spf1 ip4:192.0.2.1 ip4:192.0.2.0/24 ip6:2001:db8::1 ip6:2001:db8::/32 ~all"), Pass, "0 of"},
		{"8 look-ups", chain(8), Pass, "8 of the 10"},
		{"9 look-ups", chain(9), Info, "9 of the 10"},
		{"10 look-ups", chain(10), Info, "10 of the 10"},
		{"11 look-ups", chain(11), Problem, "more than the 10"},
		{"11 terms", one("v=spf1" + strings.Repeat(" exists:%{i}.x.net", 11) + " -all"), Problem, "more than the 10"},
		{"terms that are not reached", one("v=spf1 -all" + strings.Repeat(" a:x.net", 20)), Pass, "0 of the 10"},
		{"redirect", one("v=spf1 redirect=x.net"), Pass, "redirect=x.net"},
		{"redirect that is not reached", one("v=spf1 redirect=nowhere.net -all"), Pass, "0 of"},
		{"two redirects", one("v=spf1 redirect=x.net redirect=x.net"), Problem, "several redirects"},
		{"modifiers that are not known", one("v=spf1 exp=why.x.net ra=postmaster -all"), Pass, "0 of"},
		{"macros", one("v=spf1 include:%{ir}.x.net exists:%{l}.%{d} a:%{d} -all"), Pass, "3 of"},
		{"everybody", one("v=spf1 all"), Problem, "+all"},
		{"everybody by an include", one("v=spf1 include:any.net -all"), Problem, "+all"},
		{"everybody is refused", one("v=spf1 -include:any.net -all"), Pass, "1 of"},
		{"loop", one("v=spf1 include:loop.net -all"), Problem, "includes itself"},
		{"include of nothing", one("v=spf1 include:nowhere.net -all"), Problem, "no SPF record at nowhere.net"},
		{"include of several", one("v=spf1 include:two.net -all"), Problem, "2 SPF records at two.net"},
		{"ptr", one("v=spf1 ptr -all"), Warning, "ptr"},
		{"ptr of a domain", one("v=spf1 ptr:x.net -all"), Warning, "send.acme.org: ptr:x.net"},
		{"addresses of hosts", one("v=spf1 a mx a:mail.acme.org/24//64 mx:acme.org -all"), Pass, "4 of"},
		{"prefix lengths", one("v=spf1 a/24 -all"), Pass, "send.acme.org: a/24"},
		{"two hosts without addresses", one("v=spf1 a:no1.net a:no2.net -all"), Pass, "2 of"},
		{"three hosts without addresses", one("v=spf1 a:no1.net a:no2.net mx:no3.net -all"), Warning, "3 hosts"},
		{"too many MX", one("v=spf1 mx:many.org -all"), Problem, "11 MX records"},
		{"a mechanism that does not exist", one("v=spf1 -all ipv4:192.0.2.1"), Problem, `"ipv4:192.0.2.1"`},
		{"a word", one("v=spf1 hello -all"), Problem, "does not exist"},
		{"an address that is none", one("v=spf1 ip4:192.0.2 -all"), Problem, "no address"},
		{"an address of the other family", one("v=spf1 ip6:192.0.2.1 -all"), Problem, "no address"},
		{"include without a domain", one("v=spf1 include: -all"), Problem, "names no domain"},
		{"include of a label", one("v=spf1 include:localhost -all"), Problem, "names no domain"},
		{"a prefix that is too long", one("v=spf1 a:mail.acme.org/33 -all"), Problem, "has an invalid prefix length"},
		{"a without a domain", one("v=spf1 a: -all"), Problem, "names no domain"},
		{"all of something", one("v=spf1 all:x.net"), Problem, "must be all alone"},
		{"redirect to nothing", one("v=spf1 redirect="), Problem, "names no domain"},
		{"no answer", map[string][]string{host: {"v=spf1 include:fails.net -all"}}, Info, "could not be looked up"},
		{"no address by an error", one("v=spf1 a:fails.net -all"), Info, "could not be looked up"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			some := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
			dns := resolve.Fake{TXTRecords: c.zone, Fail: []string{"fails.net"},
				AddrRecords: map[string][]netip.Addr{host: some, "mail.acme.org": some},
				MXRecords: map[string][]resolve.MX{host: {{Host: "mx.acme.org"}}, "acme.org": {{Host: "mx.acme.org"}},
					"many.org": make([]resolve.MX, 11)}}
			in := good()
			in.DNS = dns
			r := check(t, in)["spf"]
			if text := r.Message + "\n" + strings.Join(r.Details, "\n"); r.Level != c.level || !strings.Contains(text, c.shows) {
				t.Errorf("%s %s; want %s, and %q", r.Level, text, c.level, c.shows)
			}
		})
	}
}

// The number of DNS look-ups is limited, even if records refer to each other.
func TestLookUpsAreBounded(t *testing.T) {
	t.Parallel()
	z := map[string][]string{}
	for i := range 500 {
		record := "v=spf1"
		for j := range 20 {
			record += fmt.Sprintf(" include:i%d.net a:i%d.net mx:i%d.net", (i+j+1)%500, j, j)
		}
		z[fmt.Sprintf("i%d.net", i)] = []string{record}
	}
	z["send.acme.org"] = z["i0.net"]
	counted := &counting{Resolver: resolve.Fake{TXTRecords: z}}
	in := good()
	in.DNS = counted
	if r := check(t, in)["spf"]; r.Level != Problem {
		t.Errorf("%+v", r)
	}
	if n := counted.n.Load(); n < 10 || n > 20 {
		t.Errorf("%d look-ups", n)
	}
	a := newLookUps(counted)
	counted.n.Store(0)
	for range 2 * lookUpMax {
		a.txt(t.Context(), "i0.net")
	}
	if n := counted.n.Load(); n != lookUpMax {
		t.Errorf("%d look-ups are allowed", n)
	}
}

func TestDMARC(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, from string
		zone       map[string][]string
		bulk       bool
		level      Level
		shows      string
	}{
		{"none", "acme.org", nil, false, Warning, "There is no DMARC record for acme.org"},
		{"none for bulk mail", "acme.org", nil, true, Problem, "v=DMARC1; p=none; rua=mailto:dmarc@acme.org"},
		{"none below", "mail.acme.org", nil, false, Warning, "at _dmarc.acme.org, such as"},
		{"something else", "acme.org", map[string][]string{"_dmarc.acme.org": {"v=spf1 -all", "v=DMARC10; p=none"}}, false,
			Warning, "no DMARC record"},
		{"reports", "acme.org", map[string][]string{"_dmarc.acme.org": {"v = DMARC1; p=none"}}, false, Info, "p=none"},
		{"quarantine", "acme.org", map[string][]string{"_dmarc.acme.org": {"x", "v=DMARC1; p=Quarantine"}}, false, Pass,
			"to quarantine mail"},
		{"of the organization", "mail.acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=reject"}}, false, Pass,
			"_dmarc.acme.org"},
		{"of its own", "mail.acme.org", map[string][]string{"_dmarc.mail.acme.org": {"v=DMARC1; p=none"},
			"_dmarc.acme.org": {"v=DMARC1; p=reject"}}, false, Info, "_dmarc.mail.acme.org"},
		{"for subdomains", "mail.acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=reject; sp=none"}}, false,
			Info, "sp=none"},
		{"several", "acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=none", "v=DMARC1; p=reject"}}, false,
			Problem, "2 DMARC records"},
		{"no policy", "acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1"}}, false, Problem, "no valid policy"},
		{"no answer of the second", "mail.fails.org", nil, false, Info, "of mail.fails.org could not"},
		{"test mode", "acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=reject; t=y"}}, false, Info,
			"reject mail that is not yours, but is in test mode"},
		{"far above", "a.b.acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=reject"}}, false, Pass,
			"_dmarc.acme.org"},
		{"several above", "mail.acme.org", map[string][]string{"_dmarc.acme.org": {"v=DMARC1", "v=DMARC1; p=reject"}}, false,
			Problem, "at _dmarc.acme.org"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := good()
			in.From.Domain, in.Bulk = c.from, c.bulk
			in.DNS = resolve.Fake{TXTRecords: c.zone, Fail: []string{"_dmarc.fails.org"}}
			r := check(t, in)["dmarc"]
			if text := r.Message + "\n" + strings.Join(r.Details, "\n"); r.Level != c.level || !strings.Contains(text, c.shows) {
				t.Errorf("%s %s; want %s, and %q", r.Level, text, c.level, c.shows)
			}
		})
	}
}

func TestAlignment(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, signed, path, record string
		level                      Level
	}{
		{"both", "acme.org", "send.acme.org", "", Pass},
		{"of the organization", "mail.acme.org", "send.acme.org", "", Pass},
		{"a strict return path", "acme.org", "send.acme.org", "; aspf=s", Info},
		{"a strict signature", "mail.acme.org", "send.acme.org", "; adkim=s", Warning},
		{"another's return path", "acme.org", "send.relay.net", "", Info},
		{"another's signature", "relay.net", "send.acme.org", "", Warning},
		{"neither", "relay.net", "send.relay.net", "", Problem},
		{"neither, strictly", "mail.acme.org", "send.acme.org", "; adkim=s; aspf=s", Problem},
		{"nothing known", "", "", "", Info},
		{"a public suffix", "acme.org", "send.acme.org", "; psd=y", Info},
	} {
		in := good()
		in.Sender.SignedBy, in.Sender.ReturnPath = c.signed, c.path
		in.DNS = resolve.Fake{TXTRecords: map[string][]string{"_dmarc.acme.org": {"v=DMARC1; p=reject" + c.record}}}
		if r := check(t, in)["alignment"]; r.Level != c.level {
			t.Errorf("%s: %+v, want %s", c.name, r, c.level)
		}
	}
}
