package cli

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/tlsreports"
)

// tlsReports counts sessions of several domains, and a day later sends one report, fails to send another, and drops the
// counts of a domain that wants none.
func (d *driver) tlsReports() {
	d.t.Helper()
	var later time.Duration
	from, err := message.ParseAddress("notices@resend.dev")
	if err != nil {
		d.t.Fatal(err)
	}
	dns := resolve.Fake{TXTRecords: map[string][]string{
		"_smtp._tls.one.example": {"v=TLSRPTv1; rua=mailto:a@one.example"},
		"_smtp._tls.two.example": {"v=TLSRPTv1; rua=mailto:a@two.example"}}}
	s, err := tlsreports.New(tlsreports.Config{From: from, Now: func() time.Time { return d.DB.Now().Add(later) }},
		tlsreports.Deps{DB: d.DB, DNS: dns, Guard: netguard.New(netguard.Options{}), Log: slog.New(slog.DiscardHandler),
			Mail: func(_ context.Context, _, to string, _ []byte) error {
				if to == "a@two.example" {
					return errors.New("refused")
				}
				return nil
			}})
	if err != nil {
		d.t.Fatal(err)
	}
	for range 2 {
		for _, domain := range []string{"one.example", "two.example", "three.example"} {
			s.Count(tlsreports.Session{Domain: domain, Policy: tlsrpt.Policy{Type: tlsrpt.NoPolicy}})
			s.Count(tlsreports.Session{Domain: domain, Policy: tlsrpt.Policy{Type: tlsrpt.NoPolicy},
				Host: "mx." + domain, Result: tlsrpt.NoSTARTTLS})
		}
		if err := s.Flush(d.t.Context()); err != nil {
			d.t.Error(err)
		}
	}
	later = 48 * time.Hour
	if err := s.Send(d.t.Context()); err != nil {
		d.t.Error(err)
	}
}
