package servedpolicies_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// A policy begins in the mode testing, is enforced, follows the MX records, and is withdrawn. A sender obeys each step,
// and a changed text is served before the record has its id.
func TestLifeOfAPolicy(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		if p := f.get(); p.Mode != servedpolicies.Off || p.State != servedpolicies.Inactive || p.Text != "" ||
			len(p.Records) > 0 {
			t.Errorf("before, the policy is %+v", p)
		}
		f.expectBody("")
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.expectBody(policy("testing", 86400, inbound))
		if p.State != servedpolicies.Pending || p.ID != idAt(start) || p.Records[0].Value != publicHost ||
			p.Records[1].Value != "v=STSv1; id="+idAt(start)+";" {
			t.Errorf("the new policy is %+v", p)
		}
		if p = f.check(); p.State != servedpolicies.Pending || problems(p) != "host record " {
			t.Errorf("without records, the policy is %+v", p)
		}
		if ok, err := f.s.MayHaveCertificate(t.Context(), "mta-sts."+name); ok || err != nil {
			t.Errorf("a host that leads elsewhere may have a certificate: %v", err)
		}
		f.publish()
		f.pass(3 * time.Minute)
		if p = f.check(); p.State != servedpolicies.Working || len(p.Problems) > 0 {
			t.Errorf("with records, the policy is %+v", p)
		}
		if ok, err := f.s.MayHaveCertificate(t.Context(), "mta-sts."+name); !ok || err != nil {
			t.Errorf("the host may have no certificate: %v", err)
		}
		f.expectSender("testing")
		if p.EnforceAdvised {
			t.Error("enforce is advised at once")
		}
		f.pass(15 * 24 * time.Hour)
		for _, x := range []struct {
			reports [2]int64
			advised bool
		}{{[2]int64{0, 0}, false}, {[2]int64{9, 1}, false}, {[2]int64{9, 0}, true}} {
			f.reports = x.reports
			if p = f.check(); p.EnforceAdvised != x.advised {
				t.Errorf("with the reports %v, enforce is advised: %v", x.reports, p.EnforceAdvised)
			}
		}
		f.expectSender("testing")

		p = f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
		f.expectBody(policy("enforce", 604800, inbound))
		if p.ID != idAt(start) {
			t.Errorf("the record should have the id %s before all nodes serve the new text", p.ID)
		}
		if p = f.check(); len(p.Problems) > 0 {
			t.Errorf("during the announcement: %+v", p.Problems)
		}
		f.pass(6 * time.Minute)
		if p = f.get(); p.ID != idAt(start.Add(15*24*time.Hour+3*time.Minute)) {
			t.Errorf("after the announcement, the id is %s", p.ID)
		}
		f.expectSender("testing")
		f.publish()
		f.expectSender("enforce")

		// A new host is listed next to the old one, until no sender has an old DNS answer.
		f.pass(time.Hour)
		f.zone.set(func(z *resolve.Fake) {
			z.MXRecords = map[string][]resolve.MX{name: {{Host: "b.example", Pref: 20}, {Host: "a.example", Pref: 10}}}
		})
		f.check()
		f.expectBody(policy("enforce", 604800, inbound, "a.example", "b.example"))
		f.pass(time.Hour)
		f.publish()
		f.zone.set(func(z *resolve.Fake) {
			z.MXRecords = map[string][]resolve.MX{name: {{Host: inbound, Pref: 10}, {Host: "a.example", Pref: 10}}}
		})
		f.check()
		f.expectBody(policy("enforce", 604800, inbound, "a.example", "b.example"))
		f.pass(8 * 24 * time.Hour)
		f.check()
		f.expectBody(policy("enforce", 604800, inbound, "a.example"))

		f.expectWithdrawal()
	})
}

// expectWithdrawal switches an enforced policy off, which senders learn before the policy ends.
func (f *fixture) expectWithdrawal() {
	f.t.Helper()
	removed := f.now()
	p := f.set(servedpolicies.Change{Mode: servedpolicies.Off})
	f.expectBody(policy("none", 86400))
	if p.State != servedpolicies.Ending || p.Mode != servedpolicies.Off ||
		!p.KeepUntil.Equal(removed.Add(7*24*time.Hour+time.Minute)) {
		f.t.Errorf("the withdrawn policy is %+v", p)
	}
	f.pass(6 * time.Minute)
	f.publish()
	f.expectSender("none")
	f.pass(6 * 24 * time.Hour)
	f.check()
	f.expectBody(policy("none", 86400))
	f.pass(24 * time.Hour)
	if p = f.check(); p.State != servedpolicies.Inactive || len(p.Records) > 0 {
		f.t.Errorf("after the end, the policy is %+v", p)
	}
	f.expectBody("")
}

// A policy that is switched on again while it ends keeps its hosts, and never has an id that it had before.
func TestSwitchedOnAgain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		seen := map[string]bool{}
		for range 3 {
			for _, mode := range []servedpolicies.Mode{servedpolicies.Testing, servedpolicies.Off} {
				f.set(servedpolicies.Change{Mode: mode})
				f.publish()
				f.pass(6 * time.Minute)
				p := f.get()
				if seen[p.ID] {
					t.Errorf("the id %s returns", p.ID)
				}
				seen[p.ID] = true
			}
		}
	})
}

// Only a verified receiving domain of a team that is not suspended serves its policy, and only that team sees it.
func TestWhoServes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		ctx := t.Context()
		change := servedpolicies.Change{Mode: servedpolicies.Testing}
		_, getErr := f.s.Get(ctx, f.Other.TeamID, f.domain.ID)
		_, setErr := f.s.Set(ctx, f.Other.TeamID, f.domain.ID, change)
		if fault.KindOf(getErr) != fault.NotFound || fault.KindOf(setErr) != fault.NotFound {
			t.Errorf("another team gets %v and %v", getErr, setErr)
		}
		if _, err := f.s.Set(ctx, f.Acme.TeamID, f.Sender.ID, change); fieldOf(err) != "mode" {
			t.Errorf("a sending domain gets %v", err)
		}
		f.set(change)
		body := policy("testing", 86400, inbound)
		f.expectBody(body)
		for _, host := range []string{"mta-sts.acme.example", "mta-sts.unknown.example", name, "mta-sts.", "mta-sts",
			"mta-sts." + strings.Repeat("a.", 200), "MTA-STS." + name, "mta-sts.in.example.", "x.mta-sts." + name} {
			if text, err := f.s.Body(ctx, host); !errors.Is(err, servedpolicies.ErrNoPolicy) {
				t.Errorf("%s serves %q, %v", host, text, err)
			}
		}
		f.Must(f.Teams.SetSuspended(ctx, f.Acme.TeamID, true))
		f.expectBody("")
		f.Must(f.Teams.SetSuspended(ctx, f.Acme.TeamID, false))
		f.expectBody(body)
		on, off := true, false
		f.Must(f.Domains.Update(ctx, f.Acme.TeamID, f.domain.ID, domains.Change{
			Capabilities: domains.Capabilities{Sending: &on, Receiving: &off}}))
		f.expectBody("") // no sender has found the policy yet
		if p := f.check(); len(p.Problems) > 0 {
			t.Errorf("a domain that does not receive has the problems %+v", p.Problems)
		}
		f.Must(f.Domains.Delete(ctx, f.Acme.TeamID, f.domain.ID))
		f.expectBody("")
		if n := f.Count(`SELECT COUNT(*) FROM served_policies`); n != 0 {
			t.Errorf("%d policies are left of a deleted domain", n)
		}
	})
}

// Two nodes serve the same text, and neither serves the policy of a domain that was deleted.
func TestTwoNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	one, two := dbtest.Open(t, url), dbtest.Open(t, url)
	f := newFixture(t, one)
	f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
	other := f.service(testnode.Bare(t, two, testnode.Options{}))
	body, err := other.Body(t.Context(), "mta-sts."+name)
	if err != nil || body != policy("testing", 86400, inbound) {
		t.Errorf("the other node serves %q, %v", body, err)
	}
	f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
	if body, err = other.Body(t.Context(), "mta-sts."+name); !errors.Is(err, servedpolicies.ErrNoPolicy) {
		t.Errorf("the other node serves %q of a deleted domain, %v", body, err)
	}
}

// Refused changes name the field and change nothing.
func TestRefusedChanges(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		many := strings.Split(strings.Repeat("a.example ", 11), " ")
		for _, x := range []struct {
			c     servedpolicies.Change
			field string
		}{
			{servedpolicies.Change{}, "mode"},
			{servedpolicies.Change{Mode: "none"}, "mode"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, MaxAge: time.Hour}, "max_age"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, MaxAge: mtasts.MaxAge + time.Second}, "max_age"},
			{servedpolicies.Change{Mode: servedpolicies.Enforce, MaxAge: 24 * time.Hour}, "max_age"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{"localhost"}}, "hosts"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{"a b.example"}}, "hosts"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{"*.example"}}, "hosts"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{"a.example\nmx: b.example"}}, "hosts"},
			{servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: many}, "hosts"},
		} {
			if _, err := f.s.Set(t.Context(), f.Acme.TeamID, f.domain.ID, x.c); fieldOf(err) != x.field {
				t.Errorf("%+v is refused by %v", x.c, err)
			}
		}
		f.certErr = errors.New("it is self-signed")
		_, err := f.s.Set(t.Context(), f.Acme.TeamID, f.domain.ID, servedpolicies.Change{Mode: servedpolicies.Enforce})
		if fieldOf(err) != "mode" || !strings.Contains(err.Error(), "it is self-signed") {
			t.Errorf("without a certificate, enforce is refused by %v", err)
		}
		if p := f.get(); p.Mode != servedpolicies.Off || !strings.Contains(p.EnforceBlocked, inbound) {
			t.Errorf("refused changes left %+v", p)
		}
		if p := f.set(servedpolicies.Change{Mode: servedpolicies.Off}); p.State != servedpolicies.Inactive {
			t.Errorf("a policy that is off is switched off: %+v", p)
		}
	})
}

// Hosts that the team names are listed before the MX records lead to them.
func TestNamedHosts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.zone.set(func(z *resolve.Fake) {
			z.MXRecords = map[string][]resolve.MX{name: {{Host: ""}, {Host: "under_score.example"}, {Host: "mx.example"}}}
		})
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{"New.Example.", "mx.example"}})
		f.expectBody(policy("testing", 86400, inbound, "mx.example", "new.example"))
		if len(p.Hosts) != 3 || p.Hosts[0].Source != "installation" || p.Hosts[1].Source != "mx" ||
			p.Hosts[2].Source != "named" {
			t.Errorf("the hosts are %+v", p.Hosts)
		}
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.expectBody(policy("testing", 86400, inbound, "mx.example", "new.example"))
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing, Hosts: []string{}})
		f.expectBody(policy("testing", 86400, inbound, "mx.example"))
	})
}
