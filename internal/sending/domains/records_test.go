package domains

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// Each kind of DNS record is compared according to its own rules.
func TestLookUpOne(t *testing.T) {
	const spf, key = "v=spf1 include:spf.host.example ~all", "v=DKIM1; k=rsa; p=MIIB"
	dns := resolve.Fake{
		MXRecords: map[string][]resolve.MX{
			"first.example":  {{Host: "ours.example", Pref: 10}, {Host: "theirs.example", Pref: 20}},
			"second.example": {{Host: "theirs.example", Pref: 10}, {Host: "OURS.example", Pref: 20}},
			"equal.example":  {{Host: "theirs.example", Pref: 10}, {Host: "ours.example", Pref: 10}},
			"theirs.example": {{Host: "theirs.example", Pref: 10}},
		},
		TXTRecords:   map[string][]string{"spf.example": {"unrelated", spf}, "dkim.example": {"unrelated", key}},
		CNAMERecords: map[string]string{"alias.example": "Ours.Example.", "other.example": "theirs.example"},
		Fail:         []string{"fails.example"},
	}
	for _, c := range []struct {
		kind, typ, name, value string
		want                   finding
	}{
		{"SPF", "MX", "first.example", "ours.example", present},
		{"SPF", "MX", "second.example", "ours.example", present},
		{"SPF", "MX", "theirs.example", "ours.example", absent},
		{"SPF", "MX", "none.example", "ours.example", absent},
		{"SPF", "MX", "fails.example", "ours.example", unknown},
		{"Receiving", "MX", "first.example", "ours.example", present},
		{"Receiving", "MX", "equal.example", "ours.example", present},
		{"Receiving", "MX", "second.example", "ours.example", absent},
		{"Receiving", "MX", "fails.example", "ours.example", unknown},
		{"SPF", "TXT", "spf.example", spf, present},
		{"SPF", "TXT", "dkim.example", spf, absent},
		{"SPF", "TXT", "none.example", spf, absent},
		{"SPF", "TXT", "fails.example", spf, unknown},
		{"DKIM", "TXT", "dkim.example", key, present},
		{"DKIM", "TXT", "spf.example", key, absent},
		{"Tracking", "CNAME", "alias.example", "ours.example", present},
		{"Tracking", "CNAME", "other.example", "ours.example", absent},
		{"Tracking", "CNAME", "none.example", "ours.example", absent},
		{"Tracking", "CNAME", "fails.example", "ours.example", unknown},
	} {
		if got, _ := lookUpOne(t.Context(), dns, Record{Kind: c.kind, Type: c.typ, FQDN: c.name,
			Value: c.value}); got != c.want {
			t.Errorf("%s %s %s: finding %v, want %v", c.kind, c.typ, c.name, got, c.want)
		}
	}
}

// Look-ups become less frequent over time. The relevant time starts at the owner's request or when the latest record
// became pending, whichever is later.
func TestRecheckAfter(t *testing.T) {
	for _, c := range []struct {
		waited time.Duration
		want   time.Duration
	}{
		{0, 10 * time.Second}, {2*time.Minute - time.Millisecond, 10 * time.Second}, {2 * time.Minute, 30 * time.Second},
		{10*time.Minute - time.Millisecond, 30 * time.Second}, {10 * time.Minute, 2 * time.Minute},
		{time.Hour - time.Millisecond, 2 * time.Minute},
		{time.Hour, 10 * time.Minute}, {6*time.Hour - time.Millisecond, 10 * time.Minute}, {6 * time.Hour, 30 * time.Minute},
		{71 * time.Hour, 30 * time.Minute},
	} {
		long := t0.Add(-100 * time.Hour).UnixMicro()
		since := t0.Add(-c.waited)
		for name, d := range map[string]Domain{
			"since the request": {VerifySince: since, checks: map[string]check{"mx": {Status: Pending, Since: long},
				"spf": {Status: Verified, Since: t0.UnixMicro()}, "dkim": {Status: Pending}}},
			"since the latest record": {VerifySince: t0.Add(-100 * time.Hour),
				checks: map[string]check{"mx": {Status: Pending, Since: since.UnixMicro()}, "spf": {Status: Pending, Since: long}}},
		} {
			if got := recheckAfter(&d, t0); got != c.want {
				t.Errorf("%v %s: again in %v, want %v", c.waited, name, got, c.want)
			}
		}
	}
}

// At the registrable domain, CAA records with the tag issue determine which authorities may issue certificates.
func TestLookUpCAA(t *testing.T) {
	caa := func(all ...resolve.CAA) resolve.Fake {
		return resolve.Fake{CAARecords: map[string][]resolve.CAA{"acme.example": all}}
	}
	ours := &Config{CAAIssuer: "letsencrypt.org"}
	for _, c := range []struct {
		name   string
		config *Config
		dns    resolve.Fake
		known  bool // the domain already required a CAA record
		want   finding
		counts bool
	}{
		{"nothing", ours, caa(), false, needless, true},
		{"ours", ours, caa(resolve.CAA{Tag: "issue", Value: "letsencrypt.org"}), false, present, true},
		{"ours with parameters", ours, caa(resolve.CAA{Tag: "issue", Value: " letsencrypt.org ; validationmethods=dns-01"}),
			false, present, true},
		{"ours beside another", ours, caa(resolve.CAA{Tag: "issue", Value: "ca.example"},
			resolve.CAA{Tag: "issue", Value: "letsencrypt.org"}), true, present, true},
		{"another", ours, caa(resolve.CAA{Tag: "issue", Value: "ca.example"}), false, absent, true},
		{"ours for wildcards alone", ours, caa(resolve.CAA{Tag: "issuewild", Value: "letsencrypt.org"}), false, absent, true},
		{"no answer", ours, resolve.Fake{Fail: []string{"acme.example"}}, false, unknown, false},
		{"no answer, and it is known", ours, resolve.Fake{Fail: []string{"acme.example"}}, true, unknown, true},
		{"no issuer of ours", &Config{}, caa(resolve.CAA{Tag: "issue", Value: "ca.example"}), true, needless, true},
	} {
		d := &Domain{Name: "mail.acme.example", checks: map[string]check{}}
		if c.known {
			d.checks["caa"] = check{Status: Pending}
		}
		if got, _, counts := lookUpCAA(t.Context(), c.config, c.dns, d); got != c.want || counts != c.counts {
			t.Errorf("%s: finding %v, counts %v", c.name, got, counts)
		}
	}
}
