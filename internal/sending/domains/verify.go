package domains

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// VerifyKind is the job kind for look-ups of a domain's DNS records.
const VerifyKind = "domains.verify"

const (
	recheckEvery = 24 * time.Hour // interval between look-ups for domains without pending records
	missingEvery = time.Hour      // interval between look-ups for domains with a missing record
	recheckBatch = 500
	serversEvery = 2 * time.Second  // interval between first look-ups at our name servers after a delegation was seen
	serversSoon  = 20 * time.Second // for how long it counts
	serversSlow  = time.Hour        // for how long they are then asked at least once a minute, and advised records looked up
	trustAfter   = time.Second      // with TrustDomains, how long it takes until records count as found
)

// Verify schedules a look-up of the domain's records and returns without waiting for the look-up.
func (s *Service) Verify(ctx context.Context, teamID, domainID string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		d, err := domainToChange(ctx, tx, teamID, domainID)
		if err != nil {
			return err
		}
		if d.Placeholder { // A placeholder's own records do not matter yet; look up its claim's proof.
			return s.scheduleProofLookUps(ctx, tx, &d)
		}
		d = restart(d, s.c.Records(&d), tx.Now())
		saveDomain(ctx, tx, &d)
		s.invalidate(tx, d.ID)
		if err := s.checkNow(ctx, tx, &d); err != nil {
			return err
		}
		// The owner may have installed the record of the next key.
		if _, err := s.Queue.Move(ctx, tx, RotateKind, teamID, teamID, rotationJob(teamID, d.ID).Dedupe, tx.Now()); err != nil {
			return err
		}
		if s.OnVerify != nil {
			if err := s.OnVerify(ctx, tx, teamID, d.ID); err != nil {
				return err
			}
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: teamID, Type: events.DomainUpdated, DomainID: d.ID, Data: d})
	})
}

// checkNow makes a look-up for the domain due now. With TrustDomains, the look-up is due one second later, so that
// clients can observe the pending state.
func (s *Service) checkNow(ctx context.Context, tx *db.Tx, d *Domain) error {
	at := tx.Now()
	if s.c.TrustDomains {
		at = at.Add(trustAfter)
	}
	moved, err := s.Queue.Move(ctx, tx, VerifyKind, d.TeamID, d.TeamID, d.ID, at)
	if err == nil && !moved {
		j := lookUpJob(d.TeamID, d.ID)
		if s.c.TrustDomains {
			j.RunAt = at
		}
		s.Queue.Insert(ctx, tx, j)
	}
	return err
}

// CheckDelegation makes a look-up due now for the domain with a name, if its owner has chosen to delegate it. It is
// called when a resolver asks this installation's name servers about a domain whose delegation was not found.
func (s *Service) CheckDelegation(ctx context.Context, name string) error {
	o, err := toDelegate(ctx, s.DB.Reader, name)
	if errors.Is(err, db.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("find the domain %s: %w", name, err)
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		return s.checkNow(ctx, tx, &Domain{ID: o.id, TeamID: o.teamID})
	})
}

// trustNew makes a look-up due after a change that added records to a verified domain, if TrustDomains is set. Without
// it, the domain would stay partially verified, and its tracking inactive, until a request to verify the domain.
func (s *Service) trustNew(ctx context.Context, tx *db.Tx, d *Domain, before Status) error {
	tracks := d.TrackingSubdomain == "" || d.checks["tracking"].Status == Verified
	if !s.c.TrustDomains || before != Verified || d.Status == Verified && tracks {
		return nil
	}
	return s.checkNow(ctx, tx, d)
}

// lookUpJob returns a look-up job for a domain, due now. The lane of the job is the team's id.
func lookUpJob(teamID, domainID string) jobs.New {
	return jobs.New{Kind: VerifyKind, Lane: teamID, TeamID: teamID, Dedupe: domainID, Payload: domainID}
}

// Kind returns the job kind for look-ups. Look-ups mostly wait for name servers, which may not answer, so many of them
// run concurrently. After internal errors, look-ups are retried without limit.
func (s *Service) Kind() jobs.Kind {
	return jobs.Kind{Name: VerifyKind, Handle: s.verify, Workers: 64, PerLane: 16, Lease: 2 * time.Minute,
		Schedule: []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour}, Endless: true}
}

// verify handles a look-up job by looking up the records and storing their states. The job is repeated as long as a
// record is pending, or [lookAgainAfter] says so.
func (s *Service) verify(ctx context.Context, j jobs.Job) error {
	d, err := getDomain(ctx, s.DB.Reader, j.TeamID, j.Payload)
	if fault.KindOf(err) == fault.NotFound {
		return s.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	if d.Placeholder {
		return s.verifyClaim(ctx, j, d)
	}
	asked, found, values := s.c.recordsInUse(&d), map[string]finding{}, map[string]string{}
	var advised []storedAdvised
	switch {
	case s.c.TrustDomains:
		found = s.foundAll(&d)
	case d.TeamID != system:
		dns := &outageWatch{Resolver: s.DNS}
		found, values = lookUp(ctx, &s.c, dns, s.watchedDelegation(dns), s.lookUpServers, &d)
		if err := dns.outage(); err != nil {
			return err
		}
		advised = s.lookUpAdvised(ctx, &d, found[delegationSeen])
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		// The domain may have changed during the look-up, so the findings are applied to the current row.
		if err := lockDomain(ctx, tx, j.Payload); err != nil {
			return err
		}
		d, err := getDomain(ctx, tx.Reader, j.TeamID, j.Payload)
		if fault.KindOf(err) == fault.NotFound {
			s.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err != nil {
			return err
		}
		found := sameRecords(found, asked, s.c.recordsInUse(&d))
		hideOwnAnswers(&d, found, values)
		after := judge(d, found, tx.Now())
		lost, err := s.registerNames(ctx, tx, &after)
		if err != nil {
			return err
		}
		if len(lost) > 0 {
			found = withRecordsAbsent(found, lost)
			after = judge(d, found, tx.Now())
		}
		after.noteLookUp(&d, found, values, tx.Now())
		after.prune(s.c.recordsInUse(&after))
		if err := s.sendingChanged(ctx, tx, &d, &after); err != nil {
			return err
		}
		saveDomain(ctx, tx, &after)
		saveAdvised(ctx, tx, after.TeamID, after.ID, advised)
		if again := lookAgainAfter(&after, advised, tx.Now()); again > 0 {
			s.Queue.Retry(ctx, tx, j, tx.Now().Add(again), "")
		} else {
			s.Queue.Finish(ctx, tx, j)
		}
		if after.Status == d.Status && sameStates(after.checks, d.checks) {
			return nil
		}
		s.invalidate(tx, d.ID)
		if after.Status == d.Status && sameStates(visible(after.checks), visible(d.checks)) {
			return nil
		}
		return s.Recorder.Record(ctx, tx, events.Event{TeamID: d.TeamID, Type: events.DomainUpdated, DomainID: d.ID,
			Data: after})
	})
}

// lookAgainAfter returns the delay until the look-up of a domain is repeated, or 0 if it is not. A look-up that
// verifies a delegation may not find the advised records, because resolvers keep their absence for a while. It is
// repeated for an hour until they are found.
func lookAgainAfter(d *Domain, advised []storedAdvised, now time.Time) time.Duration {
	if d.hasPending() {
		return recheckAfter(d, now)
	}
	c := d.checks[delegated]
	age := now.Sub(time.UnixMicro(c.Changed))
	missing := slices.ContainsFunc(advised, func(a storedAdvised) bool { return a.Status != AdvisedFound })
	if !missing || d.setup() != SetupDelegation || c.Status != Verified || c.Changed == 0 || age > serversSlow {
		return 0
	}
	return min(max(age, 10*time.Second), 2*time.Minute)
}

// sameRecords returns the findings for records that the domain still has and whose names have not changed since the
// look-up.
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

// Recheck enqueues a look-up for each domain whose last look-up was at least a day ago, or an hour ago if a record is
// missing. Domains that are not verified have no further look-ups, except those that still use their former set-up. The
// caller runs Recheck periodically.
func (s *Service) Recheck(ctx context.Context) error {
	now := s.DB.Now()
	all, err := overdue(ctx, s.DB.Reader, now.Add(-recheckEvery), now.Add(-missingEvery), recheckBatch)
	if err != nil {
		return fmt.Errorf("find domains to recheck: %w", err)
	}
	changing, err := overdueFormer(ctx, s.DB.Reader, now.Add(-recheckEvery), recheckBatch)
	if err != nil {
		return fmt.Errorf("find domains with a former set-up to recheck: %w", err)
	}
	all = append(all, changing...)
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		for _, d := range all {
			s.Queue.Insert(ctx, tx, lookUpJob(d.teamID, d.id))
		}
		return nil
	})
}
