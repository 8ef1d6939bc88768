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
	"github.com/postrider/postrider/internal/platform/jobs"
)

// wakeKind is the kind of the jobs that give an event to runs that wait for it, where the transaction of the event does
// not.
const wakeKind = "automations.wake"

// waitsMost is how many waiting runs one transaction gives an event to.
const waitsMost = 100

// waking is the payload of a job of wakeKind: an event, and the runs that it is given to.
type waking struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`

	Runs  []sleeper `json:"runs,omitempty"`
	After string    `json:"after,omitempty"` // if there are no Runs: all that wait, after the run with this id
}

// timing says whether an event is given to runs in the transaction that stores it.
type timing int

const (
	atOnce timing = iota
	late
)

// sleeper is a run that waited for an event when that happened. With another revision it has gone on since.
type sleeper struct {
	ID       string `json:"id"`
	Revision int64  `json:"revision"`
}

// wake gives an event to runs that wait for it. Those beyond waitsMost are left to a job, and so are those whose graph is
// not at hand: reading it would keep all other writers waiting.
func (s *Service) wake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e engine.Event, runIDs []string,
	when timing) error {
	if len(runIDs) == 0 {
		return nil
	}
	if len(runIDs) > waitsMost {
		runIDs = runIDs[:waitsMost]
		if err := s.wakeLater(ctx, tx, o, waking{After: runIDs[waitsMost-1]}); err != nil {
			return err
		}
	}
	all, err := lockRows(ctx, tx, o.TeamID, runIDs)
	if err != nil {
		return err
	}
	var later []sleeper
	for i := range all {
		r := &all[i]
		if r.waitFor != o.Name || r.stale() != "" { // it has just gone on, or is about to end
			continue
		}
		if when == late && !r.eventAt.Before(o.At) { // begun by this event or a later one
			continue
		}
		v := s.versions.known(r.teamID, r.versionID)
		if v == nil {
			later = append(later, sleeper{r.id, r.revision})
			continue
		}
		if err := s.give(ctx, tx, r, v, e); err != nil {
			return fmt.Errorf("give an event to run %s: %w", r.id, err)
		}
	}
	if len(later) == 0 {
		return nil
	}
	return s.wakeLater(ctx, tx, o, waking{Runs: later})
}

// wakeLater leaves an event to a job.
func (s *Service) wakeLater(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, w waking) error {
	w.Name, w.ContactID, w.Payload, w.At = o.Name, o.ContactID, o.Payload, o.At
	text, err := json.Marshal(w)
	if err != nil {
		return fmt.Errorf("encode an event for runs that wait: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: wakeKind, Lane: o.TeamID, TeamID: o.TeamID, Payload: string(text)})
	return nil
}

// give gives an event to a run that waits for one of its name and is locked.
func (s *Service) give(ctx context.Context, tx *db.Tx, r *row, v *version, e engine.Event) error {
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
	r.follow(run)
	if err := r.keep(run); err != nil {
		return err
	}
	if run.At == "" {
		status, reason := Completed, Reason("")
		if rec.Failure != nil {
			status, reason = Failed, Reason(rec.Failure.Reason)
		}
		endRow(ctx, tx, r, status, reason)
		_, err := s.p.Queue.Remove(ctx, tx, runKind, r.id)
		return err
	}
	saveRow(ctx, tx, r)
	// A job that is in hand finds another revision and begins again.
	_, err = s.p.Queue.Move(ctx, tx, runKind, r.teamID, r.id, tx.Now())
	return err
}

// wakeRest is the handler of the jobs of wakeKind.
func (s *Service) wakeRest(ctx context.Context, j jobs.Job) error {
	var w waking
	if err := json.Unmarshal([]byte(j.Payload), &w); err != nil {
		return fmt.Errorf("read the payload of a job: %w", err)
	}
	o := customevents.Occurrence{TeamID: j.TeamID, Name: w.Name, ContactID: w.ContactID, Payload: w.Payload, At: w.At}
	e, err := s.eventOf(&o)
	if err != nil {
		return err
	}
	if len(w.Runs) > 0 {
		if err := s.wakeThese(ctx, &o, e, w.Runs); err != nil {
			return err
		}
		return s.p.Queue.End(ctx, j)
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		_, waiting, err := concerned(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, w.After)
		if err != nil {
			return err
		}
		s.p.Queue.Finish(ctx, tx, j)
		return s.wake(ctx, tx, &o, e, waiting, late)
	})
}

// wakeThese gives an event to runs that are still as they were when it happened, one version after the other. Those that
// have it already are not: it can be repeated.
func (s *Service) wakeThese(ctx context.Context, o *customevents.Occurrence, e engine.Event, runs []sleeper) error {
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
				if err := s.give(ctx, tx, r, v, e); err != nil {
					return fmt.Errorf("give an event to run %s: %w", r.id, err)
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
