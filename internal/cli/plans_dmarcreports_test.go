package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"time"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/dailyreports"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

// dmarcReports counts messages in the name of several domains, and a day later sends one report, fails to send another,
// and sends none to a target that refuses it.
func (d *driver) dmarcReports() {
	d.t.Helper()
	var later time.Duration
	from, err := message.ParseAddress("notices@resend.dev")
	if err != nil {
		d.t.Fatal(err)
	}
	s, err := dmarcreports.New(dmarcreports.Config{From: from, Now: func() time.Time { return d.DB.Now().Add(later) }},
		dmarcreports.Deps{DB: d.DB, DNS: resolve.Fake{}, Log: slog.New(slog.DiscardHandler),
			Mail: func(_ context.Context, _, to string, _ []byte) error {
				return map[string]error{"a@two.example": errors.New("later"),
					"a@three.example": dailyreports.ErrBounced}[to]
			}})
	if err != nil {
		d.t.Fatal(err)
	}
	for i := range 120 {
		domain := []string{"one.example", "two.example", "three.example"}[i%3]
		record, _ := dmarc.Parse("v=DMARC1; p=none; rua=mailto:a@" + domain)
		s.Count(&authres.Facts{Source: netip.AddrFrom4([4]byte{192, 0, 2, byte(i)}), From: domain,
			Found: dmarc.Discovery{At: domain, Record: record, Requested: dmarc.None}})
		if i%40 == 39 {
			if err := s.Flush(d.t.Context()); err != nil {
				d.t.Error(err)
			}
		}
	}
	later = 48 * time.Hour
	if err := s.Send(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	if n := d.count(`SELECT COUNT(*) FROM dmarc_reports`); n != 1 {
		d.t.Errorf("%d DMARC reports wait", n)
	}
}
