package dnsadvice_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
	"github.com/postrider/postrider/internal/sending/domains"
)

// suggest is Config.Suggest of an installation with the host news.acme.com.
func suggest(domain string, labels ...string) string {
	c := domains.Config{Hosts: []string{"news.acme.com"}}
	return c.Suggest(domain, labels...)
}

func TestGuidance(t *testing.T) {
	t.Parallel()
	some := dnsadvice.Sent{Broadcasts: 5000, Others: 300}
	for name, c := range map[string]struct {
		domain  string
		records map[string][]string // DMARC records
		sent    dnsadvice.Sent
		want    []string // a part of each sentence
	}{
		"mixed": {"mail.acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=reject; sp=reject; np=reject"}}, some,
			[]string{"5000 emails of broadcasts and 300 other emails came from mail.acme.com. Send broadcasts from a domain of " +
				"their own, such as letters.acme.com,"}},
		"few broadcasts": {"mail.acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}},
			dnsadvice.Sent{Broadcasts: 99, Others: 300}, nil},
		"the organizational domain": {"acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}},
			dnsadvice.Sent{Others: 1}, []string{"such as mail.acme.com"}},
		"nothing sent": {"acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}}, dnsadvice.Sent{}, nil},
		"no record":    {"mail.acme.com", nil, dnsadvice.Sent{}, nil},
		"own record alone": {"mail.acme.com", map[string][]string{"_dmarc.mail.acme.com": {"v=DMARC1; p=none"}},
			dnsadvice.Sent{}, []string{"Publish one at acme.com too"}},
		"own record below that of the organization": {"mail.acme.com", map[string][]string{
			"_dmarc.mail.acme.com": {"v=DMARC1; p=none"}, "_dmarc.acme.com": {"v=DMARC1; p=reject; sp=reject"}},
			dnsadvice.Sent{}, []string{"Add np=reject to the DMARC record of acme.com"}},
		"own record below several of the organization": {"mail.acme.com", map[string][]string{
			"_dmarc.mail.acme.com": {"v=DMARC1; p=none"}, "_dmarc.acme.com": {"v=DMARC1; p=reject", "v=DMARC1; p=none"}},
			dnsadvice.Sent{}, nil},
		"own record below that of the suffix": {"mail.acme.com", map[string][]string{
			"_dmarc.mail.acme.com": {"v=DMARC1; p=none"}, "_dmarc.com": {"v=DMARC1; p=reject; psd=y"}},
			dnsadvice.Sent{}, []string{"Publish one at acme.com too"}},
		"sp=none": {"mail.acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=reject; sp=none; np=reject"}},
			dnsadvice.Sent{}, []string{"sp=none"}},
		"without sp and np": {"mail.acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=quarantine"}},
			dnsadvice.Sent{}, []string{"has no sp", "Add np=reject"}},
		"several records": {"acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none", "v=DMARC1; p=reject"}},
			dnsadvice.Sent{}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := resolve.Fake{TXTRecords: c.records}
			d, above := dnsadvice.Discover(t.Context(), fake.TXT, c.domain, "acme.com")
			if d == nil {
				t.Fatal("nothing is known about the policy")
			}
			got := dnsadvice.Guidance(&dnsadvice.Facts{Domain: c.domain, Organization: "acme.com", DMARC: d, Above: above},
				c.sent, suggest)
			if len(got) != len(c.want) {
				t.Fatalf("%q, want %q", got, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(got[i], want) {
					t.Errorf("%q does not contain %q", got[i], want)
				}
			}
		})
	}
}
