package dnsadvice_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
)

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
			[]string{"5000 emails of broadcasts and 300 other emails came from mail.acme.com"}},
		"few broadcasts": {"mail.acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}},
			dnsadvice.Sent{Broadcasts: 99, Others: 300}, nil},
		"the organizational domain": {"acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}},
			dnsadvice.Sent{Others: 1}, []string{"such as mail.acme.com"}},
		"nothing sent": {"acme.com", map[string][]string{"_dmarc.acme.com": {"v=DMARC1; p=none"}}, dnsadvice.Sent{}, nil},
		"no record":    {"mail.acme.com", nil, dnsadvice.Sent{}, nil},
		"own record alone": {"mail.acme.com", map[string][]string{"_dmarc.mail.acme.com": {"v=DMARC1; p=none"}},
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
			found, err := dmarc.NewWalker(fake.TXT).Discover(t.Context(), c.domain)
			if err != nil {
				t.Fatal(err)
			}
			got := dnsadvice.Guidance(&dnsadvice.Facts{Domain: c.domain, Organization: "acme.com", DMARC: &found}, c.sent)
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
