package domainreports

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A policy becomes stricter in small steps, and the tags that RFC 9989 removed disappear.
func TestNextStep(t *testing.T) {
	for text, want := range map[string]string{
		"v=DMARC1; p=none; pct=100; rua=mailto:a@b.example":   "v=DMARC1; p=quarantine; rua=mailto:a@b.example; t=y",
		"v=DMARC1; p=none; t=y":                               "v=DMARC1; p=quarantine; t=y",
		"v=DMARC1; p=quarantine; t=y; adkim=s":                "v=DMARC1; p=quarantine; adkim=s",
		"v=DMARC1; p=quarantine; ri=3600; rf=afrf; sp=reject": "v=DMARC1; p=reject; sp=reject; t=y",
		"v=DMARC1; p=reject; t=y; fo=1":                       "v=DMARC1; p=reject; fo=1",
		"v=DMARC1; p=reject":                                  "",
		"v=DMARC1; rua=mailto:a@b.example":                    "v=DMARC1; p=quarantine; rua=mailto:a@b.example; t=y",
		"v=spf1 -all":                                         "",
	} {
		if got := nextStep(text); got != want {
			t.Errorf("%s: %q instead of %q", text, got, want)
		}
	}
}

// Advised records have no tag that RFC 9989 removed. With pct=0, the owner tested the policy.
func TestRemovedTags(t *testing.T) {
	const target = "mailto:a@b.test"
	for text, want := range map[string]string{
		"v=DMARC1; p=reject; pct=50; rua=" + target:       "v=DMARC1; p=reject; rua=" + target,
		"v=DMARC1;p=quarantine;pct=100":                   "v=DMARC1; p=quarantine; rua=" + target,
		"v=DMARC1; p=reject; pct=0; rua=" + target:        "v=DMARC1; p=reject; rua=" + target + "; t=y",
		"v=DMARC1; p=reject; t=n; pct=0; rua=" + target:   "v=DMARC1; p=reject; t=n; rua=" + target,
		"v=DMARC1; p=none; rf=afrf; ri=60; rua=" + target: "v=DMARC1; p=none; rua=" + target,
		"v=DMARC1;p=reject;rua=" + target:                 "v=DMARC1;p=reject;rua=" + target,
	} {
		at := dmarc.Discovery{At: "shop.example", Text: text}
		if got := adviseRecord(&at, "shop.example", target); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
		s := &Service{c: Config{HostOf: func(string) string { return "b.test" }}}
		all := s.advised(&domains.Domain{Name: "shop.example"}, &storedRecords{token: "a", dmarc: text})
		if len(all) != 1 || all[0].Value != want {
			t.Errorf("%s, as it was stored by a former release: %+v", text, all)
		}
	}
}

// Advised records keep no tag that our name servers would refuse.
func TestAdvisedRecordsAreClean(t *testing.T) {
	const target = "mailto:a@b.test"
	long := strings.Repeat("x", 3000)
	for text, want := range map[string]string{
		"v=DMARC1; p=reject; x=a\x01b":                                        "v=DMARC1; p=reject; rua=" + target,
		"v=DMARC1;\tp=reject; rua=" + target:                                  "v=DMARC1; p=reject; rua=" + target,
		"v=DMARC1; p=reject; x=" + long + "; y=" + long[:1900] + "; sp=none":  "v=DMARC1; p=reject; y=" + long[:1900] + "; sp=none; rua=" + target,
		"v=DMARC1; p=none; rua=mailto:" + long:                                "v=DMARC1; p=none; rua=" + target,
		"v=DMARC1; x=" + long[:1980] + "; p=reject":                           "v=DMARC1; x=" + long[:1980] + "; p=reject; rua=" + target,
		"v=DMARC1" + strings.Repeat("; p=none; sp=none", 300) + "; np=reject": "v=DMARC1; p=none; sp=none; np=reject; rua=" + target,
		"v=DMARC1;p=none;x=y;rua=" + target:                                   "v=DMARC1;p=none;x=y;rua=" + target,
	} {
		if got := withTarget(text, target); got != want {
			t.Errorf("%.60q: got %.200q, want %q", text, got, want)
		}
	}
}
