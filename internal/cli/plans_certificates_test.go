package cli

import (
	"testing"

	"github.com/postrider/postrider/internal/platform/certs/certstest"
)

// getCertificates makes the installation request certificates for two hosts, one of which fails.
func (p *installation) getCertificates(t *testing.T) *certstest.Authority {
	t.Helper()
	a := certstest.New(t, 0)
	a.DNS.Hide("bounces.postrider.test", true)
	p.vars["POSTRIDER_ACME"], p.vars["POSTRIDER_ACME_DIRECTORY"] = "true", a.Directory
	p.vars["POSTRIDER_ACME_CA_FILE"], p.vars["POSTRIDER_HOSTNAME"] = a.CAFile, "mail.postrider.test"
	p.vars["POSTRIDER_BOUNCE_HOST"], p.vars["POSTRIDER_ACME_CHALLENGES"] = "bounces.postrider.test", "http-01"
	return a
}

// certificates waits until one certificate was obtained and one request has failed.
func (d *driver) certificates() {
	d.t.Helper()
	eventually(d.t, "a certificate and a failure", func() bool {
		all, err := d.Certificates(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		return len(all) == 2 && !all[0].NotAfter.IsZero() && all[1].LastError != ""
	})
}
