package dmarcreports_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports/reportstest"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

// Killed processes send no report twice.
func TestKill(t *testing.T) {
	const domains = 100
	publish := func(f *fixture) {
		for i := range domains {
			f.publish(fmt.Sprintf("d%d.example", i), fmt.Sprintf("p=none; rua=mailto:dmarc@d%d.example", i))
		}
	}
	reportstest.Kill(t, reportstest.KillCase{Domains: domains, Mails: 25, Workers: 8, Later: later,
		Count: func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			s := f.node()
			fill(s)
			publish(f)
			for i := range domains {
				s.Count(f.facts(fmt.Sprintf("d%d.example", i), "192.0.2.2"))
			}
			f.Flush(s)
		},
		Send: func(t *testing.T, d *db.DB, now time.Time, mail reportstest.MailFunc) {
			f := newFixture(t, d)
			f.At(now)
			publish(f)
			f.Send(f.node(func(_ *dmarcreports.Config, p *dmarcreports.Deps) { p.Mail = mail }))
		},
		Rows: func(t *testing.T, d *db.DB) int { return newFixture(t, d).Rows("dmarc_reports", "dmarc_report_rows") }})
}
