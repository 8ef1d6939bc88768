package tlsreports_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports/reportstest"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

// Killed processes send no report twice.
func TestKill(t *testing.T) {
	const domains = 200
	reportstest.Kill(t, reportstest.KillCase{Domains: domains, Mails: 40, Workers: 16, Later: later,
		Count: func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			s := f.node()
			for i := range domains {
				s.Count(session(fmt.Sprintf("d%d.example", i)))
			}
			f.Flush(s)
		},
		Send: func(t *testing.T, d *db.DB, now time.Time, mail reportstest.MailFunc) {
			f := newFixture(t, d)
			f.At(now)
			for i := range domains {
				f.publish(fmt.Sprintf("d%d.example", i), fmt.Sprintf("mailto:tls@d%d.example", i))
			}
			f.Send(f.node(func(_ *tlsreports.Config, p *tlsreports.Deps) { p.Mail = mail }))
		},
		Rows: func(t *testing.T, d *db.DB) int { return newFixture(t, d).rows() }})
}
