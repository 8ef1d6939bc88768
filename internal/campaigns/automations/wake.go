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

// wakeKind is the kind of job that delivers an event to further waiting runs if there are too many for the transaction
// that stored it.
const wakeKind = "automations.wake"

// maxWoken is the maximum number of waiting runs that receive an event in one transaction.
const maxWoken = 100

// maxPending is the maximum size of a run's pending events, in bytes of JSON. Further events are dropped.
const maxPending = 256 << 10

// wakePayload is the payload of a wakeKind job: an event for those runs of its contact whose ids are greater than
// After.
type wakePayload struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`
	After     string    `json:"after,omitempty"`

	// Runs is set only in jobs that a node of the previous release inserted. If Runs is set, the event is for these runs.
	Runs []waitingRun `json:"runs,omitempty"`
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
// delivers the event to the remaining runs.
func (s *Service) wake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e engine.Event, runIDs []string,
	when deliveryMode) error {
	if len(runIDs) == 0 {
		return nil
	}
	if len(runIDs) > maxWoken {
		runIDs = runIDs[:maxWoken]
		if err := s.enqueueWake(ctx, tx, o, runIDs[maxWoken-1]); err != nil {
			return err
		}
	}
	all, err := lockRows(ctx, tx, o.TeamID, runIDs)
	if err != nil {
		return err
	}
	for i := range all {
		if when == queued && !all[i].eventAt.Before(o.At) { // the run began with this event or a later event
			continue
		}
		if err := s.offerEvent(ctx, tx, &all[i], e); err != nil {
			return fmt.Errorf("deliver an event to run %s: %w", all[i].id, err)
		}
	}
	return nil
}

// enqueueWake enqueues a wakeKind job, which delivers an event to those waiting runs whose ids are greater than after.
func (s *Service) enqueueWake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, after string) error {
	text, err := json.Marshal(wakePayload{Name: o.Name, ContactID: o.ContactID, Payload: o.Payload, At: o.At,
		After: after})
	if err != nil {
		return fmt.Errorf("encode an event for runs that wait: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: wakeKind, Lane: o.TeamID, TeamID: o.TeamID, Payload: string(text)})
	return nil
}

// offerEvent delivers an event to a locked run if the run is waiting for it. If the run's graph is not cached, the
// event becomes pending, because compiling a graph in the transaction would block all other writers. As long as a run
// has pending events, further events become pending too, because the run may wait for them next.
func (s *Service) offerEvent(ctx context.Context, tx *db.Tx, r *row, e engine.Event) error {
	if r.stale() != "" || r.pending == "" && r.waitFor != e.Name { // the run will be cancelled, or waits no longer
		return nil
	}
	if r.pending == "" {
		if v := s.versions.cached(r.teamID, r.versionID); v != nil {
			return s.deliverEvent(ctx, tx, r, v, e)
		}
	}
	return s.addPending(ctx, tx, r, e)
}

// addPending stores an event for a locked run whose graph is not cached, and makes the run's job due. Events for which
// the graph waits at any step find the run until its job has delivered the pending events.
func (s *Service) addPending(ctx context.Context, tx *db.Tx, r *row, e engine.Event) error {
	all, err := r.pendingEvents()
	if err != nil {
		return err
	}
	before := len(r.pending)
	if err := r.setPending(append(all, e)); err != nil {
		return err
	}
	if before > 0 && len(r.pending) > maxPending {
		s.p.Log.Warn("a run has too many pending events; it misses one", "run", r.id, "team", r.teamID, "event", e.Name)
		return nil
	}
	if before == 0 {
		names, err := waitedEvents(ctx, tx.Reader, r.teamID, r.versionID)
		if err != nil {
			return err
		}
		for _, name := range names {
			insertWait(ctx, tx, r, name)
		}
	}
	saveRow(ctx, tx, r)
	_, err = s.p.Queue.Move(ctx, tx, runKind, r.teamID, r.teamID, r.id, tx.Now())
	return err
}

// receivePending delivers a run's pending events in the order in which they arrived.
func (s *Service) receivePending(ctx context.Context, at *runState) error {
	all, err := at.row.pendingEvents()
	if err != nil {
		return err
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		locked, err := lockRows(ctx, tx, at.row.teamID, []string{at.row.id})
		if err != nil {
			return err
		}
		if len(locked) == 0 || locked[0].revision != at.row.revision || locked[0].stale() != "" {
			return errRunChanged
		}
		r := &locked[0]
		var failure *engine.Failure
		for i := 0; i < len(all) && r.step != ""; i++ {
			if _, failure, err = s.receive(ctx, tx, r, at.version, all[i]); err != nil {
				return fmt.Errorf("deliver a pending event to run %s: %w", r.id, err)
			}
		}
		deleteWaits(ctx, tx, r.teamID, []string{r.id})
		if r.waitFor != "" {
			insertWait(ctx, tx, r, r.waitFor)
		}
		if err := r.setPending(nil); err != nil {
			return err
		}
		saveReceived(ctx, tx, r, failure)
		return nil // the caller continues with the run's job
	})
}

// deliverEvent delivers an event to a locked run, and schedules or removes the run's job.
func (s *Service) deliverEvent(ctx context.Context, tx *db.Tx, r *row, v *version, e engine.Event) error {
	received, failure, err := s.receive(ctx, tx, r, v, e)
	if err != nil || !received {
		return err
	}
	saveReceived(ctx, tx, r, failure)
	if r.step == "" {
		_, err := s.p.Queue.Remove(ctx, tx, runKind, r.teamID, r.id)
		return err
	}
	due := tx.Now()
	if !r.waitUntil.IsZero() {
		due = r.waitUntil
	}
	// A worker that is already processing the job will detect the new revision and read the run again.
	_, err = s.p.Queue.Move(ctx, tx, runKind, r.teamID, r.teamID, r.id, due)
	return err
}

// receive delivers an event to a locked run and reports whether the run was waiting for the event. The caller must call
// saveReceived. If a step fails, receive returns the failure.
func (s *Service) receive(ctx context.Context, tx *db.Tx, r *row, v *version, e engine.Event) (received bool,
	failure *engine.Failure, err error) {
	run, err := r.run()
	if err != nil {
		return false, nil, err
	}
	waited := r.waitFor
	rec, received := v.Receive(run, e)
	if !received {
		return false, nil, nil
	}
	if err := updateStep(ctx, tx, r, &rec); err != nil {
		return false, nil, err
	}
	deleteWait(ctx, tx, r, waited)
	if failure = rec.Failure; failure == nil {
		// Begin the next wait in this transaction, so that no event can happen between the two waits.
		if failure, err = s.proceed(ctx, tx, r, v, run); err != nil {
			return false, nil, err
		}
	}
	r.setProgress(run)
	return true, failure, r.setReceived(run)
}

// saveReceived saves a locked run that has received events, or ends it if it has no further step.
func saveReceived(ctx context.Context, tx *db.Tx, r *row, failure *engine.Failure) {
	switch {
	case r.step != "":
		saveRow(ctx, tx, r)
	case failure != nil:
		endRow(ctx, tx, r, Failed, Reason(failure.Reason))
	default:
		endRow(ctx, tx, r, Completed, "")
	}
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
// transaction that stores the event can deliver the event itself, without a job.
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
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, j)
		if len(w.Runs) > 0 {
			return s.wakeRuns(ctx, tx, j.TeamID, e, w.Runs)
		}
		_, waiting, err := lookUpEvent(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, w.After)
		if err != nil {
			return err
		}
		return s.wake(ctx, tx, &o, e, waiting, queued)
	})
}

// wakeRuns delivers an event to those of the given runs that have not changed since the event happened.
func (s *Service) wakeRuns(ctx context.Context, tx *db.Tx, teamID string, e engine.Event, runs []waitingRun) error {
	revisions := map[string]int64{}
	for _, r := range runs {
		revisions[r.ID] = r.Revision
	}
	all, err := lockRows(ctx, tx, teamID, slices.Sorted(maps.Keys(revisions)))
	if err != nil {
		return err
	}
	for i := range all {
		if all[i].revision != revisions[all[i].id] {
			continue
		}
		if err := s.offerEvent(ctx, tx, &all[i], e); err != nil {
			return fmt.Errorf("deliver an event to run %s: %w", all[i].id, err)
		}
	}
	return nil
}
