package domains_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// changes records the calls of OnSendingLost and OnSendingBack.
func changes(s *domains.Service) (take func() []string) {
	var all []string
	record := func(what string) func(context.Context, *db.Tx, string, string) error {
		return func(_ context.Context, _ *db.Tx, teamID, name string) error {
			all = append(all, what+" "+name+" of "+teamID)
			return nil
		}
	}
	s.OnSendingLost, s.OnSendingBack = record("lost"), record("back")
	return func() []string {
		taken := all
		all = nil
		return taken
	}
}

// If the records of a verified domain are missing for more than 72 hours, the team may no longer send until the
// records are found again. Look-ups that change nothing call neither hook.
func TestSendingIsLostWithTheRecords(t *testing.T) {
	dns := newZone()
	clocked(t, dns, domains.Config{}, func(t *testing.T, s *domains.Service, pass func(time.Duration)) {
		take := changes(s)
		expect := func(when string, want ...string) {
			t.Helper()
			if got := take(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		expect("at first")
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		pass(time.Minute)
		expect("when it is verified", "back acme.example of "+dbtest.ID("team"))
		verify(t, s, dbtest.ID("team"), dom.ID)
		pass(time.Minute)
		expect("when it is verified again")
		dns.set(func(f *resolve.Fake) { delete(f.TXTRecords, "postrider._domainkey.acme.example") })
		pass(48 * time.Hour)
		expect("while the records are missing")
		pass(74 * time.Hour)
		expect("after 72 hours", "lost acme.example of "+dbtest.ID("team"))
		if standing, _, err := s.Standing(t.Context(), dbtest.ID("team"), "acme.example"); err != nil ||
			standing != domains.Lost {
			t.Errorf("the standing is %d, %v", standing, err)
		}
		dns.install(s.Records(&dom))
		verify(t, s, dbtest.ID("team"), dom.ID)
		pass(time.Minute)
		expect("when the records are back", "back acme.example of "+dbtest.ID("team"))
	})
}

// The standing of a team toward a name changes when the domain is added, when its sending capability changes and when
// it is deleted. If one team holds the verified domain, the standing of every other team is TakenOver. A sandbox domain
// is usable by all teams.
func TestStanding(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, _, _ := build(t, d, resolve.Fake{}, domains.Config{TrustDomains: true,
			SandboxDomains: []string{"sandbox.example"}})
		oneKey(t, s)
		take, ctx := changes(s), t.Context()
		dom, err := s.AddVerified(ctx, dbtest.ID("team"), domains.NewDomain{Name: "acme.example"})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(team domains.Standing, other domains.Standing, want ...string) {
			t.Helper()
			if got := take(); !slices.Equal(got, want) {
				t.Errorf("changes %q, want %q", got, want)
			}
			for teamID, want := range map[string]domains.Standing{dbtest.ID("team"): team,
				dbtest.ID("other"): other} {
				got, domainID, err := s.Standing(ctx, teamID, "acme.example")
				if err != nil || got != want || (domainID != "") != (want == domains.Usable) {
					t.Errorf("the standing of %s is %d, with the domain %q, %v", teamID, got, domainID, err)
				}
			}
		}
		setSending := func(on bool) {
			t.Helper()
			err := s.Update(ctx, dbtest.ID("team"), dom.ID,
				domains.Change{Capabilities: domains.Capabilities{Sending: new(on),
					Receiving: new(true)}})
			if err != nil {
				t.Fatal(err)
			}
		}
		expect(domains.Usable, domains.TakenOver, "back acme.example of "+dbtest.ID("team"))
		setSending(false)
		expect(domains.Lost, domains.Lost, "lost acme.example of "+dbtest.ID("team"))
		setSending(true)
		expect(domains.Lost, domains.Lost)
		if _, err := s.AddVerified(ctx, dbtest.ID("team"), domains.NewDomain{Name: "acme.example"}); err != nil {
			t.Fatal(err)
		}
		expect(domains.Usable, domains.TakenOver, "back acme.example of "+dbtest.ID("team"))
		if err := s.Delete(ctx, dbtest.ID("team"), dom.ID); err != nil {
			t.Fatal(err)
		}
		expect(domains.Lost, domains.Lost, "lost acme.example of "+dbtest.ID("team"))
		if _, err := s.Sender(ctx, dbtest.ID("team"), "sandbox.example"); err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Standing(ctx, dbtest.ID("team"), "sandbox.example"); err != nil || got != domains.Usable {
			t.Errorf("the standing toward the sandbox is %d, %v", got, err)
		}
	})
}
