package domainreports

import "testing"

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
