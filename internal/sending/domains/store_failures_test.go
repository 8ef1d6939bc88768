package domains_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// store stands in for other packages: it runs statements when domains calls its dependencies and listeners.
type store struct{ d *db.DB }

func (s store) Recorded(ctx context.Context, tx *db.Tx, _ []events.Event) error {
	var n int
	return tx.QueryRow(ctx, `SELECT 40 + 2`).Scan(&n)
}

func (s store) attach(service *domains.Service) {
	ask := func(ctx context.Context, text string) (yes bool, err error) {
		err = s.d.QueryRow(ctx, text).Scan(&yes)
		return yes, err
	}
	service.HasScheduled = func(ctx context.Context, _, _ string) (bool, error) { return ask(ctx, `SELECT 1 = 2`) }
	service.SentSince = func(ctx context.Context, _, _ string, _ time.Time) (bool, error) {
		return ask(ctx, `SELECT 1 = 3`)
	}
	service.Notify = func(ctx context.Context, tx *db.Tx, _, _, _ string) error {
		var n int
		return tx.QueryRow(ctx, `SELECT 40 + 3`).Scan(&n)
	}
}

// If any statement of an operation fails, the operation returns an error and changes nothing.
func TestVerbsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, dns := t.Context(), newZone()
		others := store{d}
		s, _, _ := build(t, d, dns, domains.Config{}, others)
		trusting, _, _ := build(t, d, dns, domains.Config{TrustDomains: true,
			SandboxDomains: []string{"sandbox.example"}}, others)
		for _, service := range []*domains.Service{s, trusting} {
			oneKey(t, service)
			others.attach(service)
		}
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
		claim := func() {
			t.Helper()
			var err error
			if c, _, err = trusting.Claim(ctx, "other", domains.NewDomain{Name: dom.Name}); err != nil {
				t.Fatal(err)
			}
			j = inHand(t, d, c.DomainID)
		}
		claimed := func() {
			t.Helper()
			verified()
			handled()
			claim()
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
			{"Update of one that is proved", func() { verified(); handled() }, func() error {
				return s.Update(ctx, "team", dom.ID, domains.Change{ClickTracking: &no})
			}},
			{"Delete", one, func() error { return s.Delete(ctx, "team", dom.ID) }},
			{"Verify", one, func() error { return s.Verify(ctx, "team", dom.ID) }},
			{"Sender", func() { verified(); handled(); d.Hint("domains", dom.ID) }, func() error {
				_, err := s.Sender(ctx, "team", dom.Name)
				return err
			}},
			{"Sender of a sandbox", func() {
				if err := trusting.EraseTeam(ctx, "system"); err != nil {
					t.Fatal(err)
				}
			}, func() error { _, err := trusting.Sender(ctx, "team", "sandbox.example"); return err }},
			{"Signing", func() { d.Hint("domains", dom.ID) }, func() error { _, err := s.Signing(ctx, dom.ID); return err }},
			{"the look-up", verified, look},
			{"Claim", func() { verified(); handled() }, func() error {
				_, _, err := s.Claim(ctx, "other", domains.NewDomain{Name: dom.Name})
				return err
			}},
			{"GetClaim", claimed, func() error { _, err := s.GetClaim(ctx, "other", c.DomainID); return err }},
			{"VerifyClaim", claimed, func() error { _, err := s.VerifyClaim(ctx, "other", c.DomainID); return err }},
			{"the look for a proof", claimed, look},
			{"the look at what is in use", func() {
				claimed()
				if err := look(); err != nil {
					t.Fatal(err)
				}
				j = inHand(t, d, c.DomainID)
			}, look},
			{"handing over", func() {
				one()
				claim()
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
		for name, act := range map[string]func() error{"Recheck": func() error { return s.Recheck(ctx) },
			"EraseTeam": func() error {
				return s.EraseTeam(ctx, "team")
			}} {
			if trace.EachBroken(t, one, act, nil) < 1 {
				t.Errorf("%s never fails", name)
			}
		}
		if _, err := s.Create(ctx, "team", domains.NewDomain{Name: "other.example", Region: "moon"}); fault.KindOf(
			err) != fault.Invalid {
			t.Errorf("in a region that there is not: %v", err)
		}
	})
}
