package domainreports

import (
	"strings"
	"testing"
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
