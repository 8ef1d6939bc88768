package servedpolicies_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// After a change that the team requested, the policy waits a day for the new id before it counts as failing.
func TestChangeNeedsNewID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		changed := f.now()
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		if p.State != servedpolicies.Updating || p.ID != idAt(start) || !p.NewIDAt.Equal(changed.Add(5*time.Minute)) ||
			!p.PublishBy.Equal(changed.Add(24*time.Hour+5*time.Minute)) {
			t.Errorf("after the change, the policy is %+v", p)
		}
		if p = f.check(); p.State != servedpolicies.Updating || len(p.Problems) > 0 {
			t.Errorf("before the new id appears, the policy is %+v", p)
		}
		if !p.NextCheckAt.Equal(p.NewIDAt) {
			t.Errorf("the next check is at %s instead of %s", p.NextCheckAt, p.NewIDAt)
		}
		f.pass(5 * time.Minute)
		if p = f.get(); p.State != servedpolicies.Updating || problems(p) != "record " || !p.NewIDAt.IsZero() ||
			p.ID != idAt(changed) || !strings.Contains(p.Problems[0].Message, "v=STSv1; id="+idAt(changed)+";") {
			t.Errorf("when the new id appears, the policy is %+v", p)
		}
		for range 90 {
			f.check()
			f.pass(16 * time.Minute)
			if p = f.get(); p.State != servedpolicies.Updating && f.now().Before(changed.Add(24*time.Hour)) {
				t.Fatalf("after %s, the policy is %+v", f.now().Sub(changed), p)
			}
			// Doctor judges what Examine returns.
			if x, err := servedpolicies.Examine(t.Context(), d.Reader, &f.domain); err != nil ||
				f.now().Before(changed.Add(24*time.Hour)) && len(x.Problems) > 0 {
				t.Fatalf("after %s, doctor finds %+v, %v", f.now().Sub(changed), x, err)
			}
		}
		// The time is over, so the team gets a notice, once.
		f.check()
		f.pass(16 * time.Minute)
		if p = f.check(); p.State != servedpolicies.Failing || problems(p) != "record " {
			t.Errorf("after a day, the policy is %+v", p)
		}
		f.expectTold(1, events.DomainTransportFailed)
		f.publish()
		f.pass(16 * time.Minute)
		if p = f.check(); p.State == servedpolicies.Updating || len(p.Problems) > 0 {
			t.Errorf("with the new id, the policy is %+v", p)
		}
	})
}

// A policy whose new id is published in time works all along. It is checked often, so that the team soon sees it.
func TestNewIDIsPublished(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.pass(6 * time.Minute)
		f.check()
		f.publish()
		f.pass(3 * time.Minute)
		if p := f.check(); p.State != servedpolicies.Working || len(p.Problems) > 0 || !p.PublishBy.IsZero() {
			t.Errorf("with the new id, the policy is %+v", p)
		}
		f.pass(48 * time.Hour)
		if p := f.check(); p.State != servedpolicies.Working {
			t.Errorf("two days later, the policy is %+v", p)
		}
		f.expectTold(0, "")
	})
}

// While a policy ends, a record with a former id, or none, is a problem: senders do not learn of the withdrawal. It
// causes no notice and no finding of doctor.
func TestEndingWithFormerID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := working(t, d)
		removed := f.now()
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Off})
		if p.State != servedpolicies.Ending || !p.NewIDAt.Equal(removed.Add(5*time.Minute)) || len(p.Problems) > 0 {
			t.Errorf("directly after the change, the policy is %+v", p)
		}
		f.pass(6 * time.Minute)
		p = f.check()
		if problems(p) != "record " || !strings.Contains(p.Problems[0].Message, "id="+idAt(removed)+";") ||
			!p.CheckedAt.Equal(f.now()) {
			t.Errorf("with the former id, the policy is %+v", p)
		}
		f.publish()
		f.pass(16 * time.Minute)
		if p = f.check(); len(p.Problems) > 0 || p.State != servedpolicies.Ending {
			t.Errorf("with the new id, the policy is %+v", p)
		}
		f.zone.set(func(z *resolve.Fake) { z.TXTRecords = nil })
		f.pass(25 * time.Hour)
		if p = f.check(); problems(p) != "record " {
			t.Errorf("without the record, the policy is %+v", p)
		}
		if x, err := servedpolicies.Examine(t.Context(), d.Reader, &f.domain); x != nil || err != nil {
			t.Errorf("doctor finds %+v, %v", x, err)
		}
		f.zone.set(func(z *resolve.Fake) { z.Fail = []string{"_mta-sts." + name} })
		f.pass(25 * time.Hour)
		if p = f.check(); problems(p) != "record " {
			t.Errorf("without an answer, the policy is %+v", p)
		}
		f.publish()
		f.pass(25 * time.Hour)
		if p = f.check(); len(p.Problems) > 0 {
			t.Errorf("with the record again, the policy is %+v", p)
		}
		f.expectTold(0, "")
		f.pass(7 * 24 * time.Hour)
		if p = f.check(); p.State != servedpolicies.Inactive {
			t.Errorf("after the end, the policy is %+v", p)
		}
	})
}

// A policy whose record was never published keeps its id when it changes. One whose record the owner has just published
// does not.
func TestUnpublishedPolicyKeepsItsID(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.check()
		f.pass(10 * time.Second)
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce, Hosts: []string{"mx2.example"}})
		if p.ID != idAt(start) || !p.NewIDAt.IsZero() {
			t.Errorf("after the second change, the policy is %+v", p)
		}
		f.publish()
		f.pass(6 * time.Minute)
		if p = f.check(); p.State != servedpolicies.Working || p.ID != idAt(start) {
			t.Errorf("with the records, the policy is %+v", p)
		}
		f.expectSender("enforce")
	})
	t.Run("published since the last check", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
			f.publish()
			f.pass(time.Minute)
			if p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce}); !p.NewIDAt.Equal(f.now().Add(5 * time.Minute)) {
				t.Errorf("the policy is %+v", p)
			}
			f.pass(6 * time.Minute)
			if p := f.get(); p.ID == idAt(start) {
				t.Errorf("the id stays %s", p.ID)
			}
		})
	})
	t.Run("no answer", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
			f.zone.set(func(z *resolve.Fake) { z.Fail = []string{"_mta-sts." + name} })
			f.pass(time.Minute)
			if p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce}); p.NewIDAt.IsZero() {
				t.Errorf("the policy is %+v", p)
			}
		})
	})
}

// A policy that is switched off before its record was published has no problem while it ends.
func TestUnpublishedPolicyEnds(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.check()
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Off})
		if p.State != servedpolicies.Ending || !p.NewIDAt.IsZero() || p.ID == idAt(start) {
			t.Errorf("the policy is %+v", p)
		}
		f.pass(10 * time.Minute)
		if p = f.check(); len(p.Problems) > 0 {
			t.Errorf("the problems are %+v", p.Problems)
		}
	})
}

// A request to verify the domain makes the check of its policy due, also while another check runs.
func TestVerifyChecksThePolicy(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.check()
		f.publish()
		if p := f.check(); p.State != servedpolicies.Pending {
			t.Fatalf("without a request, the policy is %+v", p)
		}
		soon := func() {
			f.Update(func(tx *db.Tx) error { return f.s.CheckSoon(t.Context(), tx, f.Acme.TeamID, f.domain.ID) })
		}
		soon()
		if p := f.check(); p.State != servedpolicies.Working {
			t.Errorf("after a request, the policy is %+v", p)
		}
		soon()
		f.zone.set(func(z *resolve.Fake) { z.CNAMERecords = nil })
		f.duringFetch = nil
		if p := f.check(); p.State != servedpolicies.Failing {
			t.Errorf("after another request, the policy is %+v", p)
		}
		f.publish()
		soon()
		f.duringFetch = func() {
			f.duringFetch = nil
			f.zone.set(func(z *resolve.Fake) { z.CNAMERecords = nil })
			soon()
		}
		if p := f.check(); problems(p) != "host " {
			t.Errorf("after a request during a check, the policy is %+v", p)
		}
	})
}

// The domain's owner has nothing to publish if the name servers of the installation answer for the domain.
func TestDelegatedDomain(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.delegate(f.Acme.TeamID, f.domain.ID)
		if p := f.set(servedpolicies.Change{Mode: servedpolicies.Testing}); !p.Automatic {
			t.Errorf("the policy is %+v", p)
		}
		f.publish()
		if p := f.check(); p.State != servedpolicies.Working {
			t.Errorf("the policy is %+v", p)
		}
		p := f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
		if p.State != servedpolicies.Working || p.NewIDAt.IsZero() || !p.PublishBy.IsZero() {
			t.Errorf("after a change, the policy is %+v", p)
		}
		f.pass(5 * time.Minute) // caches of the DNS still have the former id
		if p = f.check(); p.State != servedpolicies.Working || len(p.Problems) > 0 {
			t.Errorf("with the former id in a cache, the policy is %+v", p)
		}
		f.zone.set(func(z *resolve.Fake) {
			z.MXRecords = map[string][]resolve.MX{name: {{Host: inbound, Pref: 10}, {Host: "backup.example", Pref: 20}}}
		})
		f.publish()
		f.pass(26 * time.Hour)
		f.check()
		f.pass(6 * time.Minute)
		if p = f.check(); p.State != servedpolicies.Working || len(p.Problems) > 0 {
			t.Errorf("after a change of the MX records, the policy is %+v", p)
		}
	})
}

// The name servers keep the records of a policy that was deleted before its first check, because they have had them.
func TestDeletedBeforeTheFirstCheck(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.Domains.Withdrawn = f.s.Withdrawn // with the clock of the test
		f.delegate(f.Acme.TeamID, f.domain.ID)
		f.set(servedpolicies.Change{Mode: servedpolicies.Testing})
		f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		f.expectZone("after the deletion", idAt(start))
		f.expectBody(policy("none", 86400))
		f.Must(f.s.Check(t.Context()))
		f.expectZone("after the check", idAt(start))
		f.pass(8 * 24 * time.Hour)
		f.Must(f.s.Check(t.Context()))
		f.expectZone("after the end", "")
	})
	t.Run("another set-up", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, d *db.DB) {
			f := newFixture(t, d)
			f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
			f.publish()
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
			f.Must(f.s.Check(t.Context()))
			f.expectBody(policy("none", 86400))
		})
	})
}
