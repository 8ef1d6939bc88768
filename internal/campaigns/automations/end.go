package automations

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// deletedContactKind is the kind of job that completes the work of [Service.EndContact] if a deleted contact has very
// many runs.
const deletedContactKind = "automations.gone"

// maxEnded is the maximum number of runs that one transaction ends. Ending maxEnded runs occupies SQLite's only writer
// for a few milliseconds.
const maxEnded = 100

// cancel marks a team's locked runs as cancelled with the given reason, and removes their jobs. A worker that is
// already processing a cancelled run's job will detect that the run has changed.
func (s *Service) cancel(ctx context.Context, tx *db.Tx, teamID string, all []row, reason Reason) {
	if len(all) == 0 {
		return
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].id
		all[i].contactGone = all[i].contactGone || reason == ContactDeleted
		endRow(ctx, tx, &all[i], Cancelled, reason)
	}
	skipSteps(ctx, tx, teamID, ids, reason)
	deleteWaits(ctx, tx, teamID, ids)
	s.p.Queue.RemoveAll(ctx, tx, runKind, teamID, ids)
	s.p.Queue.RemoveAll(ctx, tx, callKind, teamID, ids)
}

// cancelOne cancels a run and ends its job j. The update fails if the run has changed since it was read.
func (s *Service) cancelOne(ctx context.Context, j jobs.Job, r *row, reason Reason) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.cancel(ctx, tx, r.teamID, []row{*r}, reason)
		s.p.Queue.Finish(ctx, tx, j)
		return nil
	})
}

// endStoppedRuns handles jobs of the kind endKind: it ends those runs of an automation whose epoch is older than the
// automation's. Runs that begin after the automation has been enabled again have the current epoch and continue.
//
// endStoppedRuns lists the runs by id. Ids are not in commit order, because each node creates ids with its own clock.
// The list can therefore miss a run from an older epoch, but only if the run was committed after the automation was
// stopped. A run that was committed after the stop has not carried out a step yet, and its first step detects the old
// epoch. A waiting run has carried out its first step, so it was committed before the stop and is not missed.
func (s *Service) endStoppedRuns(ctx context.Context, j jobs.Job) error {
	for after, more := "", true; more; {
		ids, last, err := staleRuns(ctx, s.p.DB.Reader, j.TeamID, j.Payload, after, maxEnded)
		if err != nil {
			return err
		}
		if after, more = last, last != ""; len(ids) == 0 {
			continue
		}
		began := time.Now()
		err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
			all, err := lockHeads(ctx, tx, j.TeamID, ids)
			if err != nil {
				return err
			}
			by := map[Reason][]row{}
			for _, r := range all {
				if why := r.stale(); why != "" {
					by[why] = append(by[why], r)
				}
			}
			for _, why := range []Reason{Stopped, AutomationDeleted} {
				s.cancel(ctx, tx, j.TeamID, by[why], why)
			}
			return nil
		})
		if err == nil {
			err = pause(ctx, time.Since(began))
		}
		if err != nil {
			return fmt.Errorf("end the runs of automation %s: %w", j.Payload, err)
		}
	}
	return s.p.Queue.End(ctx, j)
}

// pause waits for the given time, so that other transactions can use the database.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// EndContact ends a contact's runs in the transaction that deletes the contact. EndContact also erases the contact's
// data from the runs, and deletes the contact's run counts. If the contact has too many runs for one transaction, a job
// ends the remaining runs. A run that deletes its own contact continues, and the data in that run is erased when the
// run ends.
func (s *Service) EndContact(ctx context.Context, tx *db.Tx, teamID, contactID string) error {
	deleteContactCounts(ctx, tx, teamID, contactID)
	of := deletedContact{ContactID: contactID, Except: causeOf(ctx)}
	n, err := s.endRunsOf(ctx, tx, teamID, of)
	if err != nil {
		return err
	}
	_, more, err := forgetSome(ctx, tx, teamID, of, "")
	if err != nil || n < maxEnded && !more {
		return err
	}
	text, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("encode the contact whose runs end: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: deletedContactKind, Lane: teamID, TeamID: teamID, Dedupe: contactID,
		Payload: string(text)})
	return nil
}

// deletedContact identifies a deleted contact. A deletedContact is the payload of jobs of the kind deletedContactKind.
type deletedContact struct {
	ContactID string `json:"contact"`
	Except    string `json:"except"` // the run whose step deleted the contact, or ""
}

// endRunsOf ends up to maxEnded runs of a deleted contact and returns their number.
func (s *Service) endRunsOf(ctx context.Context, tx *db.Tx, teamID string, of deletedContact) (int64, error) {
	ids, err := activeRunsOf(ctx, tx.Reader, teamID, of.ContactID, of.Except, maxEnded)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	all, err := lockHeads(ctx, tx, teamID, ids)
	if err != nil {
		return 0, err
	}
	s.cancel(ctx, tx, teamID, all, ContactDeleted)
	return int64(len(all)), nil
}

// forgetSome erases a deleted contact's data from a batch of its runs, starting after the given run id. The results are
// the last run id in the batch, and whether the contact has more runs.
func forgetSome(ctx context.Context, tx *db.Tx, teamID string, of deletedContact, after string) (last string, more bool,
	err error) {
	some, more, err := runsOf(ctx, tx.Reader, teamID, of.ContactID, after)
	if err != nil || len(some) == 0 {
		return "", false, err
	}
	ids := idsOf(some)
	last = ids[len(ids)-1]
	forgetRuns(ctx, tx, teamID, slices.DeleteFunc(ids, func(id string) bool { return id == of.Except }))
	return last, more, nil
}

// endDeletedContact handles jobs of the kind deletedContactKind.
func (s *Service) endDeletedContact(ctx context.Context, j jobs.Job) error {
	var of deletedContact
	if err := json.Unmarshal([]byte(j.Payload), &of); err != nil {
		return fmt.Errorf("read the payload of a job: %w", err)
	}
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return s.endRunsOf(ctx, tx, j.TeamID, of) })
	if err != nil {
		return err
	}
	for after, more := "", true; more; {
		began := time.Now()
		var last string
		err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			last, more, err = forgetSome(ctx, tx, j.TeamID, of, after)
			return err
		})
		if err == nil && more {
			err = pause(ctx, time.Since(began))
		}
		if err != nil {
			return fmt.Errorf("erase the data of contact %s from its runs: %w", of.ContactID, err)
		}
		after = last
	}
	return s.p.Queue.End(ctx, j)
}

// CancelRun cancels one run of an automation. If the run has already ended, CancelRun returns an Invalid fault.
func (s *Service) CancelRun(ctx context.Context, teamID, automationID, runID string) error {
	r, found, err := getRow(ctx, s.p.DB.Reader, teamID, runID)
	if err != nil {
		return err
	}
	if !found || r.automationID != automationID {
		return runNotFound()
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		all, err := lockHeads(ctx, tx, teamID, []string{runID})
		if err != nil {
			return err
		}
		if len(all) == 0 || all[0].stale() != "" {
			return fault.Invalidf("", "The run has ended already. Only one that is `running` can be cancelled.")
		}
		s.cancel(ctx, tx, teamID, all, RunCancelled)
		return nil
	})
}
