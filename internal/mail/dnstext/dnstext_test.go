package dnstext_test

import (
	"testing"

	"github.com/postrider/postrider/internal/mail/dnstext"
)

func TestSameKey(t *testing.T) {
	const key = "v=DKIM1; k=rsa; p=MIIBIjANBgkq"
	for text, want := range map[string]bool{
		key:                                    true,
		`"v=DKIM1; k=rsa; p=MIIBIjANBgkq"`:     true,
		`"v=DKIM1; k=rsa; p=MIIB" "IjANBgkq"`:  true,
		"p=MIIBIjANBgkq":                       true,
		"k=rsa;p=MIIB IjANBgkq ; v=DKIM1":      true,
		"v=DKIM1; k=rsa; p=another":            false,
		"v=DKIM1; p=":                          false,
		"":                                     false,
		`v=DKIM1\; k=rsa\; p=MIIBIjANBgkq`:     false, // receivers find the version DKIM1\
		`\"v=DKIM1; k=rsa; p=MIIBIjANBgkq\"`:   false,
		`v=DKIM1; k=rsa; p=MIIBIjANBgkq; t=s\`: false,
	} {
		if dnstext.SameKey(text, key) != want {
			t.Errorf("SameKey(%q) is not %v", text, want)
		}
	}
	if dnstext.SameKey("v=DKIM1; p=", "v=DKIM1; p=") {
		t.Error("two records without a key have the same key")
	}
}

func TestSameInclude(t *testing.T) {
	const record = "v=spf1 include:spf.example.com ~all"
	for text, want := range map[string]bool{
		record:                                  true,
		`"v=spf1 include:spf.example.com ~all"`: true,
		"V=SPF1 ip4:192.0.2.1 INCLUDE:SPF.example.com -all": true,
		"v=spf1 +include:spf.example.com ?all":              true,
		"v=spf1 include:other.example.com ~all":             false,
		"v=spf1 -include:spf.example.com ~all":              false,
		"v=spf1; include:spf.example.com ~all":              false,
		"include:spf.example.com":                           false,
		"":                                                  false,
		`v=spf1 include:spf.example.com ~all\`:              false, // receivers find no mechanism all\
		`v=spf1\ include:spf.example.com\ ~all`:             false,
		`\"v=spf1 include:spf.example.com ~all\"`:           false,
	} {
		if dnstext.SameInclude(text, record) != want {
			t.Errorf("SameInclude(%q) is not %v", text, want)
		}
	}
	if dnstext.SameInclude(record, "v=spf1 ~all") {
		t.Error("a record is the same as one that includes nothing")
	}
}

func TestTag(t *testing.T) {
	for _, c := range []struct {
		record, value string
		ok            bool
	}{
		{"v=DKIM1; p=a b\tc ; t=s", "abc", true},
		{"v=DKIM1;p=a=b", "a=b", true},
		{"v=DKIM1; p=", "", true},
		{"v=DKIM1; p", "", false},
		{"v=DKIM1; P=a; pp=b", "", false},
	} {
		if value, ok := dnstext.Tag(c.record, "p"); value != c.value || ok != c.ok {
			t.Errorf("%q: %q and %v", c.record, value, ok)
		}
	}
}
