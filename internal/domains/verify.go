package domains

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
)

// VerifyKind is the kind of the jobs that look a domain's records up.
const VerifyKind = "domains.verify"

const (
	recheckEvery = 24 * time.Hour // of domains that are not waited for
	missingEvery = time.Hour      // of those with a record missing
	recheckBatch = 500
	trustAfter   = time.Second // from a request to verify to the look that finds everything, where domains are trusted
)

// Verify starts to look for the domain's records and returns at once.
func (s *Service) Verify(ctx context.Context, teamID, domainID string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error {
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		if d.Placeholder { // Its records are of use only when it has the name: until then the claim's proof is looked for.
			return s.askAgain(ctx, tx, &d)
		}
		d = restart(d, s.c.Records(&d), tx.Now())
		if err := saveDomain(ctx, tx, &d); err != nil {
			return err
		}
		s.changed(tx, d.ID)
		if err := s.checkNow(ctx, tx, &d); err != nil {
			return err
		}
		return s.recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainUpdated, DomainID: d.ID, Data: d})
	})
}

// checkNow sees to it that a look-up of the domain is due, and that there is only one. Where domains are trusted it is
// due in a moment, so that whoever tries things out sees what is pending.
func (s *Service) checkNow(ctx context.Context, tx *db.Tx, d *Domain) error {
	at := tx.Now()
	if s.c.TrustDomains {
		at = at.Add(trustAfter)
	}
	moved, err := s.q.Move(ctx, tx, VerifyKind, d.TeamID, d.ID, at)
	if err == nil && !moved {
		j := lookUpJob(d.TeamID, d.ID)
		if s.c.TrustDomains {
			j.RunAt = at
		}
		s.q.Insert(ctx, tx, j)
	}
	return err
}

// lookUpJob is a look-up that is due. A team's look-ups are a lane.
func lookUpJob(teamID, domainID string) jobs.New {
	return jobs.New{Kind: VerifyKind, Lane: teamID, TeamID: teamID, Dedupe: domainID, Payload: domainID}
}

// Kind is how look-ups are worked. Nearly all of the time they wait for name servers, which may be silent. Errors of
// ours end none of them: whoever waits for a domain has nobody to ask.
func (s *Service) Kind() jobs.Kind {
	return jobs.Kind{Name: VerifyKind, Handle: s.verify, Workers: 64, PerLane: 16, Lease: 2 * time.Minute,
		Schedule: []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}, Endless: true}
}

// verify looks the records up, records what they say, and comes back while something is still looked for.
func (s *Service) verify(ctx context.Context, j jobs.Job) error {
	d, err := domainByID(ctx, s.d.Reader, j.Payload)
	if fault.KindOf(err) == fault.NotFound {
		return s.q.End(ctx, j)
	}
	if err != nil {
		return err
	}
	if d.Placeholder {
		return s.verifyClaim(ctx, j, d)
	}
	asked, found := s.c.Records(&d), map[string]finding{}
	switch {
	case s.c.TrustDomains:
		found = s.foundAll(&d)
	case d.TeamID != system:
		found = lookUp(ctx, &s.c, s.dns, &d)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		// The domain may have changed while DNS was asked; what was found is judged against what it is now.
		if err := lockDomain(ctx, tx, j.Payload); err != nil {
			return err
		}
		d, err := domainByID(ctx, tx.Reader, j.Payload)
		if fault.KindOf(err) == fault.NotFound {
			s.q.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		found := sameRecords(found, asked, s.c.Records(&d))
		after := judge(d, found, tx.Now())
		lost, err := s.occupy(ctx, tx, &after)
		if err != nil {
			return err
		}
		if len(lost) > 0 {
			after = judge(d, notFound(found, lost), tx.Now())
		}
		after.prune(s.c.Records(&after))
		if err := saveDomain(ctx, tx, &after); err != nil {
			return err
		}
		if after.waiting() {
			s.q.Retry(ctx, tx, j, tx.Now().Add(recheckAfter(&after, tx.Now())), "")
		} else {
			s.q.Finish(ctx, tx, j)
		}
		if after.Status == d.Status && maps.Equal(after.checks, d.checks) {
			return nil
		}
		s.changed(tx, d.ID)
		return s.recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: events.DomainUpdated, DomainID: d.ID, Data: after})
	})
}

// sameRecords are the findings that are of the domain's records as they are now, and not of others that it had when
// they were asked for.
func sameRecords(found map[string]finding, asked, now []Record) map[string]finding {
	at := func(all []Record, key string) string {
		i := slices.IndexFunc(all, func(r Record) bool { return r.Key == key })
		if i < 0 {
			return ""
		}
		return all[i].FQDN
	}
	found = maps.Clone(found)
	maps.DeleteFunc(found, func(key string, _ finding) bool { return key != "caa" && at(asked, key) != at(now, key) })
	return found
}

// Recheck enters look-ups of domains that were not looked at for a day, or for an hour when a record is missing. It is
// run now and then.
func (s *Service) Recheck(ctx context.Context) error {
	now := s.d.Now()
	all, err := overdue(ctx, s.d.Reader, now.Add(-recheckEvery), now.Add(-missingEvery), recheckBatch)
	if err != nil {
		return fmt.Errorf("find domains to look at again: %w", err)
	}
	return s.d.Update(ctx, func(tx *db.Tx) error {
		for _, d := range all {
			s.q.Insert(ctx, tx, lookUpJob(d.teamID, d.id))
		}
		return nil
	})
}
