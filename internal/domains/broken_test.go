package domains_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/page"
)

// A verb of which any statement fails says so, and has changed nothing.
func TestVerbsWithoutAStatement(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, dns := t.Context(), newZone()
		s, _, _ := build(t, d, dns, domains.Config{})
		oneKey(t, s)
		trusting, _, _ := build(t, d, dns, domains.Config{TrustDomains: true})
		oneKey(t, trusting)
		var dom domains.Domain
		var c domains.Claim
		var j jobs.Job
		n := 0
		one := func() {
			n++
			dom = mustCreate(t, s, domains.NewDomain{Name: fmt.Sprintf("d%d.example", n), TrackingSubdomain: "links"})
		}
		verified := func() {
			one()
			dns.install(s.Records(&dom))
			verify(t, s, "team", dom.ID)
			j = inHand(t, d, dom.ID)
		}
		handled := func() {
			t.Helper()
			if err := s.Kind().Handle(ctx, j); err != nil {
				t.Fatal(err)
			}
		}
		claimed := func() {
			t.Helper()
			verified()
			handled()
			var err error
			if c, _, err = trusting.Claim(ctx, "other", domains.NewDomain{Name: dom.Name}); err != nil {
				t.Fatal(err)
			}
			j = inHand(t, d, c.DomainID)
		}
		rows := func() (text string) {
			t.Helper()
			for _, what := range []string{`COUNT(*) FROM domains`, `COUNT(*) FROM domain_claims`, `COUNT(*) FROM jobs`,
				`COUNT(*) FROM domains WHERE status = 'verified'`, `COUNT(*) FROM domains WHERE team_id = 'other'`,
				`COUNT(*) FROM domains WHERE checks <> '{}'`} {
				var n int
				if err := d.QueryRow(ctx, `SELECT `+what).Scan(&n); err != nil {
					t.Fatal(err)
				}
				text += fmt.Sprintln(n, what)
			}
			return text
		}
		look := func() error { return trusting.Kind().Handle(ctx, j) }
		no := false
		for _, v := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"Create", nil, func() error {
				n++
				_, err := s.Create(ctx, "team", domains.NewDomain{Name: fmt.Sprintf("d%d.example", n), TrackingSubdomain: "links"})
				return err
			}},
			{"AddVerified", func() { n++ }, func() error {
				_, err := trusting.AddVerified(ctx, "team", domains.NewDomain{Name: fmt.Sprintf("d%d.example", n)})
				return err
			}},
			{"AddVerified of one that is there", one, func() error {
				_, err := trusting.AddVerified(ctx, "team", domains.NewDomain{Name: dom.Name})
				return err
			}},
			{"Get", one, func() error { _, err := s.Get(ctx, "team", dom.ID); return err }},
			{"Exists", nil, func() error {
				there, err := s.Exists(ctx, "team", dom.ID)
				if err == nil && !there {
					t.Error("it does not exist")
				}
				return err
			}},
			{"Count", nil, func() error { _, err := s.Count(ctx, "team"); return err }},
			{"List", nil, func() error { _, _, err := s.List(ctx, "team", page.Page{}); return err }},
			{"Update", one, func() error {
				return s.Update(ctx, "team", dom.ID, domains.Change{OpenTracking: &no, TrackingSubdomain: new("other")})
			}},
			{"Delete", one, func() error { return s.Delete(ctx, "team", dom.ID) }},
			{"Verify", one, func() error { return s.Verify(ctx, "team", dom.ID) }},
			{"Sender", func() { verified(); handled(); d.Hint("domains", dom.ID) }, func() error {
				_, err := s.Sender(ctx, "team", dom.Name)
				return err
			}},
			{"Signing", func() { d.Hint("domains", dom.ID) }, func() error { _, err := s.Signing(ctx, dom.ID); return err }},
			{"the look-up", verified, look},
			{"Claim", func() { verified(); handled() }, func() error {
				_, _, err := s.Claim(ctx, "other", domains.NewDomain{Name: dom.Name})
				return err
			}},
			{"GetClaim", claimed, func() error { _, err := s.GetClaim(ctx, "other", c.DomainID); return err }},
			{"VerifyClaim", claimed, func() error { _, err := s.VerifyClaim(ctx, "other", c.DomainID); return err }},
			{"the look for a proof", claimed, look},
			{"handing over", func() {
				claimed()
				if err := look(); err != nil {
					t.Fatal(err)
				}
				j = inHand(t, d, c.DomainID)
			}, look},
		} {
			before := ""
			failed := trace.EachBroken(t, func() {
				if v.prepare != nil {
					v.prepare()
				}
				before = rows()
			}, v.act, func(err error) {
				if now := rows(); err != nil && now != before {
					t.Errorf("%s fails and has changed something: %v\n%s\n%s", v.name, err, before, now)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", v.name)
			}
			if t.Failed() {
				t.Fatalf("at %s", v.name)
			}
		}
		for name, act := range map[string]func() error{"Recheck": func() error { return s.Recheck(ctx) }, "EraseTeam": func() error {
			return s.EraseTeam(ctx, "team")
		}} {
			if trace.EachBroken(t, one, act, nil) < 1 {
				t.Errorf("%s never fails", name)
			}
		}
		if _, err := s.Create(ctx, "team", domains.NewDomain{Name: "other.example", Region: "moon"}); fault.KindOf(err) != fault.Invalid {
			t.Errorf("in a region that there is not: %v", err)
		}
	})
}
