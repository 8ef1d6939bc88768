package dnsadvice_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/sending/dnsadvice"
)

// key is a DKIM key that is as long as an RSA key of 2,048 bits.
var key = "MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8A" + strings.Repeat("Ab3/+9", 60)

// text writes a TXT value as a zone file does.
func text(value string) string {
	var b strings.Builder
	for len(value) > 255 {
		fmt.Fprintf(&b, `"%s" `, value[:255])
		value = value[255:]
	}
	return b.String() + `"` + value + `"`
}

// good are the right records of a case's domain, one per line.
var good = []string{
	`send MX 10 bounce.example.net.`,
	`send TXT "v=spf1 include:spf.example.net ~all"`,
	`s1._domainkey TXT ` + text("v=DKIM1; k=rsa; p="+key),
	`links CNAME links.example.net.`,
	`@ MX 10 in.example.net.`,
	`_dmarc TXT "v=DMARC1; p=none"`,
}

// labCase is a zone with mistakes, and the codes that they must lead to.
type labCase struct {
	name string
	// change lists lines of the zone in addition to the good ones. A line that begins with - names a good one to leave
	// out, by its name and type.
	change string
	// visible is like change, for the recursive server; "" means the same. second is for the second server.
	visible, second string
	below           string // label of the domain below the zone; "" means the zone itself
	mode            string // see labZone
	servers         string // names of the zone's servers
	want            string // the codes; those of notes are in parentheses
}

// dkim replaces the DKIM record.
func dkim(value string) string { return "- s1._domainkey TXT\ns1._domainkey TXT " + text(value) }

func spf(values ...string) string {
	change := "- send TXT"
	for _, v := range values {
		change += "\nsend TXT " + text(v)
	}
	return change
}

func dmarcRecord(values ...string) string {
	change := "- _dmarc TXT"
	for _, v := range values {
		change += "\n_dmarc TXT " + text(v)
	}
	return change
}

var whole = "v=DKIM1; k=rsa; p=" + key

var labCases = []labCase{
	{name: "all right"},
	{name: "all right below the zone", below: "mail"},
	{name: "nothing at all", change: "- send MX\n- send TXT\n- s1._domainkey TXT\n- links CNAME\n- @ MX\n- _dmarc TXT",
		want: "missing missing missing missing missing dmarc_missing"},

	// Names
	{name: "name doubled, MX", change: "- send MX\nsend.$ZONE MX 10 bounce.example.net.", want: "name_doubled"},
	{name: "name doubled, TXT", change: "- send TXT\nsend.$ZONE TXT \"v=spf1 include:spf.example.net ~all\"", want: "name_doubled"},
	{name: "name doubled, key", change: "- s1._domainkey TXT\ns1._domainkey.$ZONE TXT " + text(whole), want: "name_doubled"},
	{name: "name doubled, CNAME", change: "- links CNAME\nlinks.$ZONE CNAME links.example.net.", want: "name_doubled"},
	{name: "name doubled below the zone", below: "mail",
		change: "- send MX\nsend.mail.$ZONE.$ZONE. MX 10 bounce.example.net.", want: "name_doubled"},
	{name: "domain left out of the name", below: "mail", change: "- send MX\nsend.$ZONE. MX 10 bounce.example.net.",
		want: "name_short"},
	{name: "key at the zone above", below: "mail", change: "- s1._domainkey TXT\ns1._domainkey.$ZONE. TXT " + text(whole),
		want: "name_short"},
	{name: "SPF at the domain", change: "- send TXT\n@ TXT \"v=spf1 include:spf.example.net ~all\"", want: "name_short"},
	{name: "key at the domain", change: "- s1._domainkey TXT\n@ TXT " + text(whole), want: "name_short"},

	// Aliases
	{name: "CNAME beside TXT", change: "links TXT \"verification=1\"", want: "cname_with_others"},
	{name: "CNAME beside MX", change: "links MX 10 other.test.", want: "cname_with_others"},
	{name: "CNAME beside the key", change: "s1._domainkey CNAME keys.other.test.", want: "cname_with_others"},
	{name: "CNAME and a wrong MX", change: "- send MX\nsend MX 10 other.test.\nsend CNAME else.test.",
		want: "cname_with_others cname_with_others"},
	{name: "CNAME in place of the key", change: "- s1._domainkey TXT\ns1._domainkey CNAME keys.other.test.",
		want: "cname_instead"},
	{name: "CNAME in place of MX and SPF", change: "- send MX\n- send TXT\nsend CNAME other.test.",
		want: "cname_instead cname_instead"},
	{name: "wrong target", change: "- links CNAME\nlinks CNAME other.test.", want: "target_differs"},
	{name: "target with the zone", change: "- links CNAME\nlinks CNAME links.example.net.$ZONE.", want: "value_doubled"},
	{name: "target as a URL", change: "- links CNAME\nlinks CNAME https://links.example.net.", want: "value_scheme"},
	{name: "proxied", change: "- links CNAME\nlinks A 198.51.100.7", servers: "a.ns.cloudflare.com.",
		want: "cname_proxied"},
	{name: "flattened", change: "- links CNAME\nlinks A 192.0.2.80\nlinks AAAA 2001:db8::80", want: "cname_flattened"},
	{name: "address in place of the CNAME", change: "- links CNAME\nlinks A 198.51.100.7", want: "address_instead"},
	{name: "IPv6 address in place of the CNAME", change: "- links CNAME\nlinks AAAA 2001:db8::7", want: "address_instead"},
	{name: "CNAME as text", change: "- links CNAME\nlinks TXT \"links.example.net\"", want: "text_instead"},
	{name: "CNAME as text with a dot", change: "- links CNAME\nlinks TXT \"links.example.net.\"", want: "text_instead"},

	// Keys
	{name: "key cut at 255", change: dkim(whole[:255]), want: "key_cut"},
	{name: "key cut at 254", change: dkim(whole[:254]), want: "key_cut"},
	{name: "key without its end", change: dkim(whole[:len(whole)-8]), want: "key_cut"},
	{name: "key in two records", change: dkim(whole[:255]) + "\ns1._domainkey TXT " + text(whole[255:]), want: "key_split"},
	{name: "key empty", change: dkim("v=DKIM1; p="), want: "key_revoked"},
	{name: "key with other characters", change: dkim("v=DKIM1; k=rsa; p=MII***" + key[6:]), want: "key_garbled"},
	{name: "another key", change: dkim("v=DKIM1; k=rsa; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQ"), want: "key_differs"},
	{name: "a second key", change: "s1._domainkey TXT \"v=DKIM1; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQ\"", want: "key_several"},
	{name: "key with quotation marks", change: dkim(`\"` + whole[:200] + `\" \"` + whole[200:] + `\"`), want: "quotes"},
	{name: "key with spaces", change: dkim("v=DKIM1;  k=rsa;  p=" + key[:100] + " " + key[100:])},
	{name: "key with other tags", change: dkim("v=DKIM1; t=s; p=" + key)},
	{name: "key before the version", change: dkim("p=" + key + "; v=DKIM1"), want: "prefix_in_value"},
	{name: "key with backslashes", change: dkim(`v=DKIM1\\; k=rsa\\; p=` + key), want: "backslashes"},
	{name: "key with smart quotes", change: dkim("“" + whole + "”"), want: "smart_quotes"},
	{name: "key after its name", change: dkim("s1._domainkey TXT " + whole), want: "prefix_in_value"},
	{name: "key with a dash of a word processor", change: dkim("v=DKIM1; k=rsa; p=" + key[:50] + "–" + key[50:]),
		want: "smart_quotes"},
	{name: "wildcard of the zone, which does not apply below _domainkey", change: "* TXT \"v=spf1 -all\""},
	{name: "wildcard below _domainkey", change: "*._domainkey TXT \"v=DKIM1; p=\"", want: "wildcard"},

	// SPF
	{name: "two SPF records", change: `send TXT "v=spf1 include:other.example.net ~all"`, want: "spf_several"},
	{name: "SPF without the include", change: spf("v=spf1 ip4:192.0.2.1 -all"), want: "spf_include"},
	{name: "SPF with more", change: spf("v=spf1 ip4:192.0.2.1 include:spf.example.net -all")},
	{name: "SPF in upper case", change: spf("V=SPF1 INCLUDE:SPF.EXAMPLE.NET ~ALL")},
	{name: "SPF over 10 look-ups", change: spf("v=spf1 include:spf.example.net include:ten.example.net ~all"),
		want: "spf_lookups"},
	{name: "SPF over 2 void look-ups", change: spf("v=spf1 include:spf.example.net include:void.example.net ~all"),
		want: "spf_void"},
	{name: "SPF that includes nothing", change: spf("v=spf1 include:spf.example.net include:none.example.net ~all"),
		want: "spf_broken"},
	{name: "SPF with a mistake", change: spf("v=spf1 include:spf.example.net ip4:400.1.1.1 ~all"), want: "spf_broken"},
	{name: "SPF for everybody", change: spf("v=spf1 include:spf.example.net +all"), want: "spf_anybody"},
	{name: "SPF with smart quotes", change: spf("“v=spf1 include:spf.example.net ~all”"), want: "smart_quotes"},
	{name: "SPF with quotation marks inside", change: spf(`\"v=spf1 include:other.example.net ~all\"`), want: "quotes"},
	{name: "SPF with a hard space", change: spf("v=spf1\u00a0include:spf.example.net ~all"), want: "smart_quotes"},
	{name: "SPF with backslashes", change: spf(`v=spf1 include:spf.example.net ~all\\`), want: "backslashes spf_broken"},
	{name: "SPF with a semicolon", change: spf("v=spf1\\; include:spf.example.net ~all"), want: "spf_include"},
	{name: "SPF after its type", change: spf("TXT v=spf1 include:spf.example.net ~all"), want: "prefix_in_value"},
	{name: "other text beside SPF", change: `send TXT "verification=1"`},
	{name: "other text in place of SPF", change: spf("verification=1"), want: "missing"},

	// Mail hosts
	{name: "null MX", change: "- @ MX\n@ MX 0 .", want: "null_mx"},
	{name: "null MX of the return path", change: "- send MX\nsend MX 0 .", want: "null_mx"},
	{name: "other mail host", change: "- @ MX\n@ MX 10 other.test.", want: "target_differs"},
	{name: "other mail host first", change: "@ MX 5 other.test.", want: "mx_other_first"},
	{name: "other mail host later", change: "@ MX 20 other.test."},
	{name: "MX with the zone", change: "- send MX\nsend MX 10 bounce.example.net.$ZONE.", want: "value_doubled"},
	{name: "MX as a URL", change: "- send MX\nsend MX 10 https://bounce.example.net/.", want: "value_scheme"},
	{name: "MX as text", change: "- send MX\n- send TXT\nsend TXT \"bounce.example.net\"", want: "missing text_instead"},

	// DMARC
	{name: "DMARC at the domain", change: "- _dmarc TXT\n@ TXT \"v=DMARC1; p=none\"", want: "dmarc_wrong_name"},
	{name: "DMARC without underscore", change: "- _dmarc TXT\ndmarc TXT \"v=DMARC1; p=none\"", want: "dmarc_wrong_name"},
	{name: "DMARC doubled", change: "- _dmarc TXT\n_dmarc.$ZONE TXT \"v=DMARC1; p=none\"", want: "dmarc_wrong_name"},
	{name: "DMARC below _domainkey", change: "- _dmarc TXT\n_dmarc._domainkey TXT \"v=DMARC1; p=none\"", want: "dmarc_wrong_name"},
	{name: "no DMARC", change: "- _dmarc TXT", want: "dmarc_missing"},
	{name: "two DMARC records", change: "_dmarc TXT \"v=DMARC1; p=reject\"", want: "dmarc_several"},
	{name: "DMARC without p", change: dmarcRecord("v=DMARC1; sp=none"), want: "dmarc_invalid"},
	{name: "DMARC with an invalid p", change: dmarcRecord("v=DMARC1; p=rejekt"), want: "dmarc_invalid"},
	{name: "DMARC with P", change: dmarcRecord("v=DMARC1; P=reject"), want: "dmarc_case"},
	{name: "DMARC with REJECT", change: dmarcRecord("v=DMARC1; p=REJECT"), want: "dmarc_case"},
	{name: "DMARC version in lower case", change: dmarcRecord("v=dmarc1; p=none"), want: "dmarc_case"},
	{name: "DMARC with an address in upper case", change: dmarcRecord("v=DMARC1; p=none; rua=mailto:A@Example.net")},
	{name: "DMARC with pct", change: dmarcRecord("v=DMARC1; p=quarantine; pct=50"), want: "dmarc_pct"},
	{name: "DMARC in test mode", change: dmarcRecord("v=DMARC1; p=quarantine; t=y")},
	{name: "DMARC with smart quotes", change: dmarcRecord("“v=DMARC1; p=none”"), want: "smart_quotes"},
	{name: "DMARC after its name", change: dmarcRecord("_dmarc v=DMARC1; p=none"), want: "prefix_in_value"},

	// Servers
	{name: "not visible yet", visible: "- send MX", want: "(not_visible_yet)"},
	{name: "old value visible", visible: "- send MX\nsend MX 10 old.test.", want: "(not_visible_yet)"},
	{name: "old key visible", visible: dkim("v=DKIM1; p=MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQ"), want: "(not_visible_yet)"},
	{name: "one server without the record", second: "- links CNAME", want: "(servers_differ)"},
	{name: "one server with the record alone", change: "- links CNAME", second: "links CNAME links.example.net.",
		visible: "- links CNAME", want: "(servers_differ)"},
	{name: "all servers refuse", mode: "lame", want: "zone_unreachable"},
	{name: "one server refuses", mode: "half", want: "server_broken"},
	{name: "bogus", mode: "bogus", want: "dnssec_bogus"},
}

// changed applies a change to the good records.
func changed(change string) string {
	lines := slices.Clone(good)
	for line := range strings.SplitSeq(change, "\n") {
		if left, ok := strings.CutPrefix(line, "- "); ok {
			lines = slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, left+" ") })
		} else if line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "\n")
}

// wantedOf returns the wanted records of a case's domain.
func wantedOf(domain string) []dnsadvice.Wanted {
	return []dnsadvice.Wanted{
		{Key: "mx", Kind: "SPF", Name: "send." + domain, Type: "MX", Value: "bounce.example.net"},
		{Key: "spf", Kind: "SPF", Name: "send." + domain, Type: "TXT", Value: "v=spf1 include:spf.example.net ~all"},
		{Key: "dkim", Kind: "DKIM", Name: "s1._domainkey." + domain, Type: "TXT", Value: whole},
		{Key: "tracking", Kind: "Tracking", Name: "links." + domain, Type: "CNAME", Value: "links.example.net"},
		{Key: "receiving", Kind: "Receiving", Name: domain, Type: "MX", Value: "in.example.net"},
	}
}

// codesOf returns the codes of problems as labCase.want has them.
func codesOf(problems []dnsadvice.Problem) string {
	var codes []string
	for _, p := range problems {
		if p.Severity == dnsadvice.Note {
			codes = append(codes, "("+p.Code+")")
		} else {
			codes = append(codes, p.Code)
		}
	}
	return strings.Join(codes, " ")
}

// Check finds the mistake in each zone, and nothing else.
func TestMistakes(t *testing.T) {
	t.Parallel()
	if len(labCases) < 60 {
		t.Fatalf("only %d cases", len(labCases))
	}
	l := newLab(t)
	for i, c := range labCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			apex := fmt.Sprintf("c%d.test", i)
			domain := strings.TrimPrefix(c.below+"."+apex, ".")
			zone := func(change string) []dns.RR {
				return parse(t, dns.Fqdn(domain), strings.ReplaceAll(changed(change), "$ZONE", apex))
			}
			z := &labZone{mode: c.mode, names: []string{"ns1.lab.test.", "ns2.lab.test."}}
			z.servers[0], z.servers[1], z.visible = zone(c.change), zone(c.change), zone(c.change)
			if c.second != "" {
				z.servers[1] = zone(c.second)
			}
			if c.visible != "" {
				z.visible = zone(c.visible)
			}
			if c.servers != "" {
				z.names = append(z.names, strings.Fields(c.servers)...)
			}
			l.add(apex, z)
			facts := l.Collect(t.Context(), domain, wantedOf(domain))
			facts.Sends = true
			problems := dnsadvice.Check(facts)
			if c.servers != "" { // servers of a provider do not answer here
				problems = slices.DeleteFunc(problems, func(p dnsadvice.Problem) bool { return p.Code == "server_broken" })
			}
			if got := codesOf(problems); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, problems)
			}
			for _, p := range problems {
				checkText(t, p)
			}
		})
	}
}

// checkText checks that a problem says what is wrong and what to do, and that its code is listed.
func checkText(t *testing.T, p dnsadvice.Problem) {
	t.Helper()
	listed := slices.ContainsFunc(dnsadvice.Codes, func(c dnsadvice.Code) bool { return c.Name == p.Code })
	if !listed || p.Name == "" || p.Type == "" || !strings.HasSuffix(p.What, ".") || !strings.HasSuffix(p.Do, ".") ||
		len(p.Found) > 310 {
		t.Errorf("problem %+v", p)
	}
}
