package servedpolicies_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
)

// zonesIn returns the zones of a name server's content.
func zonesIn(c nameserver.Content, err error) ([]nameserver.Zone, error) { return c.Zones, err }

// zoneRecords returns the records of the domain's zone with MTA-STS in their names, and whether the zone exists.
func (f *fixture) zoneRecords() (text string, ok bool) {
	f.t.Helper()
	zones, err := zonesIn(f.Domains.Zones(f.t.Context()))
	f.Must(err)
	for _, z := range zones {
		if z.Name != name {
			continue
		}
		if ok {
			f.t.Errorf("the zone %s exists twice", name)
		}
		ok = true
		for _, r := range z.Records {
			if strings.Contains(r.Name, "mta-sts.") {
				text += fmt.Sprintln(r.Name, r.Type, r.Value)
			}
		}
	}
	return text, ok
}

// expectZone compares the records of the policy in the domain's zone; "" means that the zone does not exist.
func (f *fixture) expectZone(when, policyID string) {
	f.t.Helper()
	want := ""
	if policyID != "" {
		want = "_mta-sts." + name + " TXT v=STSv1; id=" + policyID + ";\nmta-sts." + name + " CNAME " + publicHost + "\n"
	}
	if got, ok := f.zoneRecords(); got != want || ok != (want != "") {
		f.t.Errorf("%s, the zone exists: %v, with\n%s instead of\n%s", when, ok, got, want)
	}
}

// delegate gives a team's domain the set-up delegation.
func (f *fixture) delegate(teamID, domainID string) {
	f.t.Helper()
	setup := domains.SetupDelegation
	f.Must(f.Domains.ChangeSetup(f.t.Context(), teamID, domainID, domains.SetupChange{Setup: &setup}))
	f.Must(f.Domains.Verify(f.t.Context(), teamID, domainID))
	j := jobs.Job{Attempt: 1, CreatedAt: time.Now()}
	f.Update(func(tx *db.Tx) error {
		return tx.QueryRow(f.t.Context(), `UPDATE jobs SET attempt = 1, holder = id WHERE dedupe = $1
			RETURNING id, kind, lane, team_id, payload`, domainID).
			Scan((*db.ID)(&j.ID), &j.Kind, &j.Lane, (*db.ID)(&j.TeamID), &j.Payload)
	})
	f.Must(f.Domains.Kind().Handle(f.t.Context(), j))
}

// The name servers keep the two records of a deleted domain's policy until the withdrawn policy ends. Without them, no
// sender would learn that the policy was withdrawn.
func TestRecordsOfDeletedDomains(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		end  func(t *testing.T, f *fixture)
	}{
		{"domain", func(t *testing.T, f *fixture) {
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		}},
		{"team", func(t *testing.T, f *fixture) {
			f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
			f.Must(f.s.EraseTeam(t.Context(), f.Acme.TeamID))
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				f := newFixture(t, d)
				f.delegate(f.Acme.TeamID, f.domain.ID)
				f.set(servedpolicies.Change{Mode: servedpolicies.Enforce, MaxAge: 30 * 24 * time.Hour})
				f.publish()
				f.check()
				f.expectZone("before", idAt(start))
				test.end(t, f)
				f.expectZone("after the deletion", idAt(start))
				f.Domains.Withdrawn = f.s.Withdrawn // with the clock of the test
				f.pass(2 * time.Hour)
				f.Must(f.s.Check(t.Context()))
				f.pass(5 * time.Minute)
				f.expectZone("after the withdrawal", idAt(start.Add(2*time.Hour)))
				f.pass(30*24*time.Hour - 10*time.Minute)
				f.Must(f.s.Check(t.Context()))
				f.expectZone("before the end", idAt(start.Add(2*time.Hour)))
				f.pass(25 * time.Hour)
				f.Must(f.s.Check(t.Context()))
				f.expectZone("after the end", "")
			})
		})
	}
}

// A team that adds the domain again has the records in its zone, until it has a policy of its own.
func TestRecordsOfDomainsThatComeBack(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.delegate(f.Acme.TeamID, f.domain.ID)
		f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
		f.publish()
		f.check()
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		on, off := true, false
		next := f.Verified(f.Other.TeamID, domains.NewDomain{Name: name,
			Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
		f.delegate(f.Other.TeamID, next.ID)
		f.expectZone("for the next team", idAt(start))
		f.pass(time.Minute)
		_, err := f.s.Set(t.Context(), f.Other.TeamID, next.ID, servedpolicies.Change{Mode: servedpolicies.Testing})
		f.Must(err)
		f.expectZone("with a policy of its own", idAt(start.Add(time.Minute)))
	})
}

// A policy that no sender could find leaves no records, and neither does a name that lies in another zone.
func TestNoRecordsOfDeletedDomains(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d)
		f.set(servedpolicies.Change{Mode: servedpolicies.Enforce})
		f.Must(f.Domains.Delete(t.Context(), f.Acme.TeamID, f.domain.ID))
		f.expectZone("without a check", "")

		on, off := true, false
		below := f.Verified(f.Other.TeamID, domains.NewDomain{Name: "below." + name,
			Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
		_, err := f.s.Set(t.Context(), f.Other.TeamID, below.ID, servedpolicies.Change{Mode: servedpolicies.Testing})
		f.Must(err)
		f.zone.set(func(z *resolve.Fake) { z.CNAMERecords = map[string]string{"mta-sts." + below.Name: publicHost} })
		f.Must(f.s.Check(t.Context()))
		f.Must(f.Domains.Delete(t.Context(), f.Other.TeamID, below.ID))
		exists := func() bool {
			zones, err := zonesIn(f.Domains.Zones(t.Context()))
			f.Must(err)
			return slices.ContainsFunc(zones, func(z nameserver.Zone) bool { return z.Name == below.Name })
		}
		if !exists() {
			t.Error("the deleted domain has no zone")
		}
		above := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: name})
		f.delegate(f.Acme.TeamID, above.ID)
		if exists() {
			t.Error("the deleted domain has a zone below that of another domain")
		}
	})
}
