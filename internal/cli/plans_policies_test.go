package cli

import (
	"log/slog"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// policies fetches policies, refreshes them two days later, deletes one that exceeds the limits, and forgets another.
func (d *driver) policies() {
	d.t.Helper()
	var later time.Duration
	lab := ststest.New(d.t)
	s := policiesOf(d.t, lab, d.DB, func() time.Time { return d.DB.Now().Add(later) }, tlspolicies.Limits{})
	for _, domain := range []string{"one.example", "gone.example", "broken.example"} {
		lab.Set(domain, ststest.Site{TXT: ststest.Record("1"), Policy: ststest.Policy("enforce", 86400, "a.example")})
	}
	lab.Set("broken.example", ststest.Site{TXT: ststest.Record("1"), Handler: http.NotFound})
	for range 2 {
		for _, domain := range []string{"one.example", "gone.example", "broken.example", "plain.example"} {
			s.For(d.t.Context(), domain)
		}
		lab.Set("gone.example", ststest.Site{})
		later = 48 * time.Hour
	}
	if err := s.Refresh(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	two := ststest.Site{TXT: ststest.Record("1"), Policy: ststest.Policy("testing", 86400, "a.example")}
	lab.Set("two.example", two)
	s.For(d.t.Context(), "two.example")
	s = policiesOf(d.t, lab, d.DB, func() time.Time { return d.DB.Now().Add(later) }, tlspolicies.Limits{Rows: 1})
	if err := s.Refresh(d.t.Context()); err != nil {
		d.t.Error(err)
	}
	if err := s.Forget(d.t.Context(), "one.example"); err != nil {
		d.t.Error(err)
	}
}

// policiesOf returns a service that fetches the policies of a lab. A nil clock means that of the database.
func policiesOf(t *testing.T, lab *ststest.Lab, of *db.DB, clock func() time.Time,
	limits tlspolicies.Limits) *tlspolicies.Service {
	t.Helper()
	s, err := tlspolicies.New(tlspolicies.Config{RootCAs: lab.CA.Pool(), Port: lab.Port, Now: clock,
		Limits: limits}, tlspolicies.Deps{DB: of, DNS: lab.Resolver(), Fresh: lab.Resolver(), Log: slog.New(slog.DiscardHandler),
		Guard: netguard.New(netguard.Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
