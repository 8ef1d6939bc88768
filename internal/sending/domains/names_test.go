package domains_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

const races = 5

// together runs the functions concurrently and waits for all of them.
func together(all ...func()) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for _, f := range all {
		wg.Go(func() { <-start; f() })
	}
	close(start)
	wg.Wait()
}

// If one team adds a domain while another team adds a domain at its return-path host, one of the two requests is
// refused.
func TestNamesAreAddedByOneTeam(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _ := newServiceWith(t, d, resolve.Fake{}, domains.Config{TrustDomains: true})
		for i := range races {
			name := fmt.Sprintf("acme%d.example", i)
			var first, second error
			together(
				func() { _, first = s.AddVerified(t.Context(), dbtest.ID("first"), domains.NewDomain{Name: name}) },
				func() {
					_, second = s.AddVerified(t.Context(), dbtest.ID("second"), domains.NewDomain{Name: "send." + name})
				})
			if (first == nil) == (second == nil) {
				t.Errorf("%s: %v, and the domain at the host of its return paths: %v", name, first, second)
			}
			for _, err := range []error{first, second} {
				if err != nil && fault.KindOf(err) != fault.Forbidden {
					t.Error(err)
				}
			}
		}
	})
}

// If a domain and another team's domain at its return-path host are proved concurrently, only one of the two becomes
// verified.
func TestNamesAreProvedByOneTeam(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := &zone{Fake: resolve.Fake{MXRecords: map[string][]resolve.MX{}, TXTRecords: map[string][]string{}}}
		s, _ := newService(t, d, dns)
		on, off := true, false
		type pair struct{ above, at domains.Domain }
		var all []pair
		for i := range races {
			name := fmt.Sprintf("acme%d.example", i)
			above, err := s.Create(t.Context(), dbtest.ID("first"), domains.NewDomain{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			at, err := s.Create(t.Context(), dbtest.ID("second"), domains.NewDomain{Name: "send." + name,
				Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, pair{above, at})
			dns.set(func(f *resolve.Fake) {
				for _, r := range append(s.Records(&above), s.Records(&at)...) {
					if r.Type == "MX" {
						f.MXRecords[r.FQDN] = append(f.MXRecords[r.FQDN], resolve.MX{Host: r.Value, Pref: 10})
					} else {
						f.TXTRecords[r.FQDN] = append(f.TXTRecords[r.FQDN], r.Value)
					}
				}
			})
		}
		get := func(team, id string) domains.Domain {
			got, err := s.Get(t.Context(), team, id)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		for _, p := range all {
			together(func() { verify(t, s, dbtest.ID("first"), p.above.ID) }, func() {
				verify(t, s, dbtest.ID("second"),
					p.at.ID)
			})
			var above, at domains.Domain
			testnode.Until(t, "both were looked at", func() bool {
				above, at = get(dbtest.ID("first"), p.above.ID), get(dbtest.ID("second"), p.at.ID)
				return !above.CheckedAt.IsZero() && !at.CheckedAt.IsZero()
			})
			if (above.Status == domains.Verified) == (at.Status == domains.Verified) {
				t.Errorf("%s is %s, and %s is %s", above.Name, above.Status, at.Name, at.Status)
			}
			to, err := s.Receiver(t.Context(), at.Name)
			if want := map[bool]string{true: dbtest.ID("first"),
				false: dbtest.ID("second")}[above.Status == domains.Verified]; err != nil ||
				to.TeamID != want {
				t.Errorf("mail for %s is for %+v, %v", at.Name, to, err)
			}
		}
	})
}

func verify(t *testing.T, s *domains.Service, team, id string) {
	if err := s.Verify(context.WithoutCancel(t.Context()), team, id); err != nil {
		t.Error(err)
	}
}
