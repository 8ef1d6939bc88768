package domains_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// during is a DNS resolver that calls a function in the middle of a TXT query.
type during struct {
	*zone
	happens func()
}

func (q *during) TXT(ctx context.Context, name string) ([]string, error) {
	if f := q.happens; f != nil && name == "acme.example" {
		q.happens = nil
		f()
	}
	return q.zone.TXT(ctx, name)
}

// If a claim changes during the look-up of its proof, the change takes precedence over the result of the look-up.
func TestClaimsThatChangeDuringALook(t *testing.T) {
	trust := func(t *testing.T, d *db.DB, team string) {
		t.Helper()
		s, _, _ := build(t, d, newZone(), domains.Config{TrustDomains: true})
		oneKey(t, s)
		if _, err := s.AddVerified(t.Context(), team, domains.NewDomain{Name: "acme.example"}); err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name       string
		dns, asked func(t *testing.T, s *domains.Service, d *db.DB, owner domains.Domain, c domains.Claim) error
		want       domains.ClaimStatus // empty if the claim no longer exists
		jobs       int
	}{
		{"nothing", nil, nil, domains.ClaimVerified, 1},
		{"it is canceled", func(t *testing.T, s *domains.Service, _ *db.DB, _ domains.Domain, c domains.Claim) error {
			return s.Delete(t.Context(), dbtest.ID("other"), c.DomainID)
		}, nil, domains.ClaimCanceled, 0},
		{"its team is erased", func(t *testing.T, s *domains.Service, _ *db.DB, _ domains.Domain, c domains.Claim) error {
			return s.EraseTeam(t.Context(), dbtest.ID("other"))
		}, nil, "", 0},
		{"the domain becomes a third team's, which uses it too", nil,
			func(t *testing.T, s *domains.Service, d *db.DB, owner domains.Domain, _ domains.Claim) error {
				err := s.Delete(t.Context(), dbtest.ID("team"), owner.ID)
				trust(t, d, dbtest.ID("third"))
				return err
			}, domains.ClaimPending, 1},
		{"the owner no longer uses it", nil,
			func(t *testing.T, _ *domains.Service, d *db.DB, owner domains.Domain, _ domains.Claim) error {
				exec(t, d, `UPDATE domains SET checks = '{}' WHERE id = $1`, db.ID(owner.ID))
				return nil
			}, domains.ClaimPending, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, dns, d := t.Context(), &during{zone: newZone()}, dbtest.SQLite(t)
			s, _, _ := build(t, d, dns, domains.Config{})
			oneKey(t, s)
			owner := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
			trust(t, d, dbtest.ID("team"))
			claim, _, err := s.Claim(ctx, dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
			if err != nil {
				t.Fatal(err)
			}
			dns.TXTRecords["acme.example"] = []string{claim.RecordValue()}
			if c.dns != nil {
				dns.happens = func() {
					if err := c.dns(t, s, d, owner, claim); err != nil {
						t.Error(err)
					}
				}
			}
			s.SentSince = func(context.Context, string, string, time.Time) (bool, error) {
				if c.asked == nil {
					return false, nil
				}
				return false, c.asked(t, s, d, owner, claim)
			}
			if err := s.Kind().Handle(ctx, inHand(t, d, claim.DomainID)); err != nil {
				t.Error(err)
			}
			got, err := s.GetClaim(ctx, dbtest.ID("other"), claim.DomainID)
			if got.Status != c.want || (fault.KindOf(err) == fault.NotFound) != (c.want == "") {
				t.Errorf("it is %q, %v", got.Status, err)
			}
			if all, held := left(t, d, claim.DomainID); all != c.jobs || held > 0 {
				t.Errorf("%d looks are to come, %d are in hand", all, held)
			}
		})
	}
}

// A look-up that is stopped returns an error and records no findings.
func TestLooksThatAreStopped(t *testing.T) {
	dns, d := &during{zone: newZone()}, dbtest.SQLite(t)
	s, _, _ := build(t, d, dns, domains.Config{})
	oneKey(t, s)
	dom := mustCreate(t, s, domains.NewDomain{Name: "send.acme.example", ReturnPath: "a"})
	dns.install(s.Records(&dom))
	mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
	claim, _, err := s.Claim(t.Context(), dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
	if err != nil {
		t.Fatal(err)
	}
	verify(t, s, dbtest.ID("team"), dom.ID)
	for _, id := range []string{dom.ID, claim.DomainID} {
		ctx, cancel := context.WithCancel(t.Context())
		j := inHand(t, d, id)
		cancel()
		if err := s.Kind().Handle(ctx, j); err == nil {
			t.Error("it has ended")
		}
		if all, held := left(t, d, id); all != 1 || held != 1 {
			t.Errorf("%d looks are left, %d in hand", all, held)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	dns.happens = cancel
	if err := s.Kind().Handle(ctx, inHand(t, d, claim.DomainID)); err == nil {
		t.Error("a look that is stopped while DNS is asked has ended")
	}
}

// If a domain is not proved, other teams may use the names of its other records.
func TestNamesOfWhatIsNotProved(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		dns := newZone()
		s, _, _ := build(t, d, dns, domains.Config{})
		oneKey(t, s)
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		records := s.Records(&dom)
		look := func() {
			t.Helper()
			verify(t, s, dbtest.ID("team"), dom.ID)
			if err := s.Kind().Handle(t.Context(), inHand(t, d, dom.ID)); err != nil {
				t.Fatal(err)
			}
		}
		dns.install(slices.DeleteFunc(slices.Clone(records), func(r domains.Record) bool { return r.Key == "dkim" }))
		look()
		below := domains.NewDomain{Name: "send.acme.example"}
		there, err := s.Create(t.Context(), dbtest.ID("other"), below)
		if err != nil {
			t.Fatal(err)
		}
		dns.install(records)
		look()
		// This subdomain was added before another team registered its name as a host. The subdomain's settings may change,
		// but not to names that belong to another team.
		if err := s.Update(t.Context(), dbtest.ID("other"), there.ID, domains.Change{OpenTracking: new(true)}); err != nil {
			t.Errorf("of a domain that stands at a host of another team's: %v", err)
		}
		got, err := s.Get(t.Context(), dbtest.ID("other"), there.ID)
		if err != nil || !got.OpenTracking || got.ClickTracking {
			t.Errorf("%+v, %v", got, err)
		}
		err = s.Update(t.Context(), dbtest.ID("other"), there.ID, domains.Change{TrackingSubdomain: new("links")})
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("a new name of it: %v", err)
		}
		// If a domain has already lost a name, its other settings can still be changed.
		exec(t, d, `UPDATE domain_names SET domain_id = $1, team_id = $2 WHERE name = 'send.acme.example'`,
			db.ID(there.ID), db.ID(dbtest.ID("other")))
		if err := s.Update(t.Context(), dbtest.ID("team"), dom.ID, domains.Change{ClickTracking: new(true)}); err != nil {
			t.Errorf("of a domain that has lost a name: %v", err)
		}
		err = s.Update(t.Context(), dbtest.ID("team"), dom.ID, domains.Change{TLS: new("none")})
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("no such setting: %v", err)
		}
	})
}

// Even if nothing listens for notices, the owner of a claimed domain has three days before the transfer.
func TestAClaimWithoutListeners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dns, d := newZone(), dbtest.SQLite(t)
		s, _, _ := build(t, d, dns, domains.Config{TrustDomains: true})
		oneKey(t, s)
		if _, err := s.AddVerified(t.Context(), dbtest.ID("team"), domains.NewDomain{Name: "acme.example"}); err != nil {
			t.Fatal(err)
		}
		c, _, err := s.Claim(t.Context(), dbtest.ID("other"), domains.NewDomain{Name: "acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		for _, after := range []time.Duration{0, time.Second, 48 * time.Hour, 24 * time.Hour} {
			time.Sleep(after)
			if err := s.Kind().Handle(t.Context(), inHand(t, d, c.DomainID)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.GetClaim(t.Context(), dbtest.ID("other"), c.DomainID); err != nil ||
			got.Status != domains.ClaimCompleted {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A look-up that fails with an internal error is retried without limit; the first wait is short.
func TestLooksAreMadeAgain(t *testing.T) {
	s, _, _ := build(t, dbtest.SQLite(t), newZone(), domains.Config{})
	k := s.Kind()
	want := []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}
	if !slices.Equal(k.Schedule, want) || !k.Endless || k.Lease <= 15*time.Second {
		t.Errorf("%+v", k)
	}
}
