package domains_test

import (
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// In development, a domain is verified after each change of its set-up, also after its delegation counted as found.
func TestSetupsOfTrustedDomains(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := &setups{T: t, db: d}
		f.Service, _, _ = build(t, d, newZone(), domains.Config{TrustDomains: true, DNSZone: "dns.mail.test",
			DNSNames: []string{"ns1.mail.test", "ns2.mail.test"}})
		oneKey(t, f.Service)
		dom := f.create(team, "mail.acme.example")
		for _, setup := range []string{domains.SetupDelegation, domains.SetupCNAME, domains.SetupDelegation,
			domains.SetupRecords} {
			f.choose(team, dom.ID, setup)
			if got := f.look(team, dom.ID); got.Setup != setup || got.Status != domains.Verified {
				t.Errorf("with the set-up %s, the domain is %s", setup, got.Status)
			}
		}
	})
}
