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

// goneKind is the kind of the jobs that end and forget the runs of a deleted contact, where there are very many.
const goneKind = "automations.gone"

// endMost is how many runs one transaction ends: some milliseconds of SQLite's only writer.
const endMost = 100

// cancel ends runs of a team that are locked, in the transaction that says why. A job of theirs that is in hand finds
// that they have ended.
func (s *Service) cancel(ctx context.Context, tx *db.Tx, teamID string, all []row, reason Reason) {
	if len(all) == 0 {
		return
	}
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].id
		all[i].gone = all[i].gone || reason == ContactDeleted
		endRow(ctx, tx, &all[i], Cancelled, reason)
	}
	skipSteps(ctx, tx, teamID, ids, reason)
	deleteWaits(ctx, tx, teamID, ids)
	s.p.Queue.RemoveAll(ctx, tx, runKind, ids)
	s.p.Queue.RemoveAll(ctx, tx, callKind, ids)
}

// cancelOne ends a run, whose job is in hand, as it was read.
func (s *Service) cancelOne(ctx context.Context, j jobs.Job, r *row, reason Reason) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.cancel(ctx, tx, r.teamID, []row{*r}, reason)
		s.p.Queue.Finish(ctx, tx, j)
		return nil
	})
}

// endStale is the handler of the jobs of endKind: it ends the runs of an automation that are of an older epoch. Those
// that begin meanwhile, because it was enabled again, are of the newest.
//
// It goes by the ids of runs, which are in no order of commits: ids are of the clocks of nodes. It overlooks a run of an
// older epoch only if that was committed after the walk had passed its id, hence after the automation was stopped. Such a
// run has not done a step yet, and the first one finds the epoch. Whatever waits has done its first step, was committed
// before that, and is seen.
func (s *Service) endStale(ctx context.Context, j jobs.Job) error {
	for after, more := "", true; more; {
		ids, last, err := staleRuns(ctx, s.p.DB.Reader, j.TeamID, j.Payload, after, endMost)
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

// pause leaves the database to others for a time.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// EndContact ends the runs of a contact in the transaction that deletes it, besides the run whose step that is, and
// deletes what all of them have of it, and how often it has been in automations. What is beyond one transaction is left
// to a job. The run whose step that is forgets its contact when it ends.
func (s *Service) EndContact(ctx context.Context, tx *db.Tx, teamID, contactID string) error {
	leave(ctx, tx, teamID, contactID)
	of := gone{ContactID: contactID, Except: causing(ctx)}
	n, err := s.endRunsOf(ctx, tx, teamID, of)
	if err != nil {
		return err
	}
	_, more, err := forgetSome(ctx, tx, teamID, of, "")
	if err != nil || n < endMost && !more {
		return err
	}
	text, err := json.Marshal(of)
	if err != nil {
		return fmt.Errorf("encode whose runs are to end: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: goneKind, Lane: teamID, TeamID: teamID, Dedupe: contactID,
		Payload: string(text)})
	return nil
}

// gone is a contact that was deleted, and the payload of a job of goneKind.
type gone struct {
	ContactID string `json:"contact"`
	Except    string `json:"except"` // the run whose step deleted it, "" for none
}

// endRunsOf ends some runs of a contact that was deleted, and returns how many.
func (s *Service) endRunsOf(ctx context.Context, tx *db.Tx, teamID string, of gone) (int64, error) {
	ids, err := liveRunsOf(ctx, tx.Reader, teamID, of.ContactID, of.Except, endMost)
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

// forgetSome deletes what some runs of a contact, from an id on, have of it. It returns the last of them, and whether
// there are more.
func forgetSome(ctx context.Context, tx *db.Tx, teamID string, of gone, after string) (last string, more bool,
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

// endGone is the handler of the jobs of goneKind.
func (s *Service) endGone(ctx context.Context, j jobs.Job) error {
	var of gone
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
			return fmt.Errorf("forget the runs of contact %s: %w", of.ContactID, err)
		}
		after = last
	}
	return s.p.Queue.End(ctx, j)
}

// CancelRun cancels one run of an automation. One that has ended is an Invalid fault.
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
