package servedpolicies_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// Saving the same mode again keeps the lifetime if that is asked for; another mode has its own default.
func TestKeepAge(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t))
	first := f.set(servedpolicies.Change{Mode: servedpolicies.Testing, MaxAge: 48 * time.Hour})
	f.pass(time.Hour)
	if p := f.set(servedpolicies.Change{Mode: servedpolicies.Testing, KeepAge: true}); p.MaxAge != 48*time.Hour ||
		p.ID != first.ID {
		t.Errorf("the policy is %+v", p)
	}
	if p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce, KeepAge: true}); p.MaxAge != 7*24*time.Hour {
		t.Errorf("the enforced policy is %+v", p)
	}
	if p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce}); p.MaxAge != 7*24*time.Hour {
		t.Errorf("the policy with the default is %+v", p)
	}
}

// The policy of a domain that is deleted or stops receiving is withdrawn: senders get a policy of mode none at once, and
// until none of them can have a copy of the last policy. Another team that adds the domain has its own policy at once.
func TestWithdrawnWithTheDomain(t *testing.T) {
	t.Parallel()
	on, off := true, false
	for _, test := range []struct {
		name string
		end  func(t *testing.T, f *fixture)
	}{
		{"deleted", func(t *testing.T, f *fixture) {
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		}},
		{"team deleted", func(t *testing.T, f *fixture) {
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
			f.Must(f.s.EraseTeam(t.Context(), f.Acme.TeamID))
		}},
		{"receiving off", func(t *testing.T, f *fixture) {
			f.Must(f.Domains.Update(t.Context(), f.Acme.TeamID, f.domain.ID, domains.Change{
				Capabilities: domains.Capabilities{Sending: &on, Receiving: &off}}))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				f := newFixture(t, d)
				f.set(servedpolicies.Change{Mode: servedpolicies.Enforce, MaxAge: 30 * 24 * time.Hour})
				f.publish()
				f.check()
				f.expectBody(policy("enforce", 30*86400, inbound))
				test.end(t, f)
				none := policy("none", 86400)
				f.expectBody(none)
				if ok, err := f.s.MayHaveCertificate(t.Context(), "mta-sts."+name); !ok || err != nil {
					t.Errorf("the host may have no certificate any more: %v", err)
				}
				f.pass(time.Hour)
				f.Must(f.s.Check(t.Context()))
				f.expectBody(none)
				if test.name == "receiving off" {
					if p := f.get(); p.State != servedpolicies.Ending || p.ID != idAt(f.now()) && len(p.Records) != 2 {
						t.Errorf("the policy is %+v", p)
					}
				}
				f.pass(29 * 24 * time.Hour)
				f.Must(f.s.Check(t.Context()))
				f.expectBody(none)
				f.pass(25 * time.Hour)
				f.Must(f.s.Check(t.Context()))
				f.expectBody("")
				if n := f.Count(`SELECT COUNT(*) FROM served_policies`); n != 0 {
					t.Errorf("%d policies are left", n)
				}
			})
		})
	}
	t.Run("another team", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
			f.publish()
			f.check()
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
			next := f.Verified(f.Other.TeamID, domains.NewDomain{Name: name,
				Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
			f.expectBody(policy("none", 86400))
			_, err := f.s.Set(t.Context(), f.Other.TeamID, next.ID, servedpolicies.Change{Mode: servedpolicies.Testing})
			f.Must(err)
			f.expectBody(policy("testing", 86400, inbound))
			f.pass(time.Hour)
			f.Must(f.s.Check(t.Context()))
			f.expectBody(policy("testing", 86400, inbound))
		})
	})
}
