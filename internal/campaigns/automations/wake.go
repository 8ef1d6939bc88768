package automations

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// wakeKind is the kind of job that delivers an event to those waiting runs that did not receive it in the transaction
// that stored it.
const wakeKind = "automations.wake"

// maxWoken is the maximum number of waiting runs that receive an event in one transaction.
const maxWoken = 100

// wakePayload is the payload of a wakeKind job: an event, and the runs that are to receive the event.
type wakePayload struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`

	Runs  []waitingRun `json:"runs,omitempty"`
	After string       `json:"after,omitempty"` // if Runs is empty, the event is for waiting runs with greater ids
}

// deliveryMode says whether an event is delivered by the transaction that stores it or by a job.
type deliveryMode int

const (
	immediate deliveryMode = iota
	queued
)

// waitingRun is a run that was waiting for an event when the event happened. If the revision of a waitingRun has
// changed, the run is no longer waiting.
type waitingRun struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
}

// wake delivers an event to the runs that are waiting for this event. If there are more than maxWoken runs, a job
// delivers the event to the remaining runs. A job also delivers the event to runs whose graph is not cached, because
// loading a graph in the transaction would block all other writers.
func (s *Service) wake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e engine.Event, runIDs []string,
	when deliveryMode) error {
	if len(runIDs) == 0 {
		return nil
	}
	if len(runIDs) > maxWoken {
		runIDs = runIDs[:maxWoken]
		if err := s.enqueueWake(ctx, tx, o, wakePayload{After: runIDs[maxWoken-1]}); err != nil {
			return err
		}
	}
	all, err := lockRows(ctx, tx, o.TeamID, runIDs)
	if err != nil {
		return err
	}
	var later []waitingRun
	for i := range all {
		r := &all[i]
		if r.waitFor != o.Name || r.stale() != "" { // the run is no longer waiting for the event, or will be cancelled
			continue
		}
		if when == queued && !r.eventAt.Before(o.At) { // the run began with this event or a later event
			continue
		}
		v := s.versions.cached(r.teamID, r.versionID)
		if v == nil {
			later = append(later, waitingRun{r.id, r.revision})
			continue
		}
		if err := s.deliverEvent(ctx, tx, r, v, e); err != nil {
			return fmt.Errorf("deliver an event to run %s: %w", r.id, err)
		}
	}
	if len(later) == 0 {
		return nil
	}
	return s.enqueueWake(ctx, tx, o, wakePayload{Runs: later})
}

// enqueueWake enqueues a wakeKind job, which delivers an event.
func (s *Service) enqueueWake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, w wakePayload) error {
	w.Name, w.ContactID, w.Payload, w.At = o.Name, o.ContactID, o.Payload, o.At
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode an event for runs that wait: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: wakeKind, Lane: o.TeamID, TeamID: o.TeamID, Payload: string(text)})
	return nil
}

// deliverEvent delivers an event to a locked run that is waiting for an event with this name.
func (s *Service) deliverEvent(ctx context.Context, tx *db.Tx, r *row, v *version, e engine.Event) error {
	run, err := r.run()
	if err != nil {
		return err
	}
	rec, received := v.Receive(run, e)
	if !received {
		return nil
	}
	if err := updateStep(ctx, tx, r, &rec); err != nil {
		return err
	}
	deleteWait(ctx, tx, r, r.waitFor)
	failure := rec.Failure
	if failure == nil {
		// Begin the next wait in this transaction, so that no event can happen between the two waits.
		if failure, err = s.proceed(ctx, tx, r, v, run); err != nil {
			return err
		}
	}
	r.setProgress(run)
	if err := r.setReceived(run); err != nil {
		return err
	}
	if run.At == "" {
		status, reason := Completed, Reason("")
		if failure != nil {
			status, reason = Failed, Reason(failure.Reason)
		}
		endRow(ctx, tx, r, status, reason)
		_, err := s.p.Queue.Remove(ctx, tx, runKind, r.id)
		return err
	}
	saveRow(ctx, tx, r)
	due := tx.Now()
	if run.Waits != nil {
		due = run.Waits.Until
	}
	// A worker that is already processing the job will detect the new revision and read the run again.
	_, err = s.p.Queue.Move(ctx, tx, runKind, r.teamID, r.id, due)
	return err
}

// proceed carries out those steps after a wait that need only the run, and stores their records. If such a step fails,
// proceed returns the failure.
func (s *Service) proceed(ctx context.Context, tx *db.Tx, r *row, v *version, run *engine.Run) (*engine.Failure,
	error) {
	all, err := v.Proceed(run, tx.Now(), maxStepsAtOnce)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if err := insertStep(ctx, tx, r, &all[i]); err != nil {
			return nil, err
		}
		if all[i].Failure != nil {
			return all[i].Failure, nil
		}
	}
	if run.Waits != nil && run.Waits.Event != "" {
		insertWait(ctx, tx, r, run.Waits.Event)
	}
	return nil, nil
}

// LoadWaiting loads into the cache the graphs of a contact's runs that are waiting for an event. After LoadWaiting, the
// transaction that stores the event can deliver the event itself, without a job. Without a job, an event that follows
// immediately finds these runs at their next waits.
func (s *Service) LoadWaiting(ctx context.Context, teamID, event, contactID string) error {
	ids, err := waitingVersions(ctx, s.p.DB.Reader, teamID, events.CanonicalName(event), contactID)
	if err != nil {
		return err
	}
	for _, versionID := range ids {
		if _, err := s.versions.get(ctx, s.p.DB.Reader, teamID, versionID); err != nil {
			return err
		}
	}
	return nil
}

// wakeQueued handles jobs of the kind wakeKind.
func (s *Service) wakeQueued(ctx context.Context, j jobs.Job) error {
	var w wakePayload
	if err := json.Unmarshal([]byte(j.Payload), &w); err != nil {
		return fmt.Errorf("read the payload of a job: %w", err)
	}
	o := customevents.Occurrence{TeamID: j.TeamID, Name: w.Name, ContactID: w.ContactID, Payload: w.Payload, At: w.At}
	e, err := s.eventOf(&o)
	if err != nil {
		return err
	}
	if len(w.Runs) > 0 {
		if err := s.wakeRuns(ctx, &o, e, w.Runs); err != nil {
			return err
		}
		return s.p.Queue.End(ctx, j)
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		_, waiting, err := lookUpEvent(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, w.After)
		if err != nil {
			return err
		}
		s.p.Queue.Finish(ctx, tx, j)
		return s.wake(ctx, tx, &o, e, waiting, queued)
	})
}

// wakeRuns delivers an event to those of the given runs that have not changed since the event happened. Each
// transaction handles the runs that use one version of an automation. Repeating wakeRuns is safe, because receiving the
// event changes a run's revision.
func (s *Service) wakeRuns(ctx context.Context, o *customevents.Occurrence, e engine.Event, runs []waitingRun) error {
	revisions := map[string]int64{}
	for _, r := range runs {
		revisions[r.ID] = r.Revision
	}
	byVersion, err := versionsOf(ctx, s.p.DB.Reader, o.TeamID, slices.Sorted(maps.Keys(revisions)))
	if err != nil {
		return err
	}
	for _, versionID := range slices.Sorted(maps.Keys(byVersion)) {
		v, err := s.versions.get(ctx, s.p.DB.Reader, o.TeamID, versionID)
		if err != nil {
			return err
		}
		err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
			all, err := lockRows(ctx, tx, o.TeamID, byVersion[versionID])
			if err != nil {
				return err
			}
			for i := range all {
				r := &all[i]
				if r.revision != revisions[r.id] || r.stale() != "" {
					continue
				}
				if err := s.deliverEvent(ctx, tx, r, v, e); err != nil {
					return fmt.Errorf("deliver an event to run %s: %w", r.id, err)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
