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

// beginKind is the kind of job that delivers events to automations after a transaction has recorded very many events.
const beginKind = "automations.begin"

const (
	// maxRunsAtOnce limits the number of runs that begin or receive an event in a transaction that records many events. A
	// transaction with maxRunsAtOnce runs occupies SQLite's only writer for about 10 ms. A single event may still affect
	// more than maxRunsAtOnce runs.
	maxRunsAtOnce = 100
	// maxBatchBytes is the approximate maximum size of a beginKind job's payload.
	maxBatchBytes = 128 << 10
)

// occurrence is an event for a contact, both as it is stored and in the form that the engine needs.
type occurrence struct {
	customevents.Occurrence
	event engine.Event
}

// deliverAll delivers events for a team's contacts to automations. The events must be sorted by contact id. If the next
// event would begin or wake too many runs (more than maxRunsAtOnce in total), deliverAll enqueues jobs for the
// remaining events in the same transaction.
func (s *Service) deliverAll(ctx context.Context, tx *db.Tx, all []occurrence, begins map[string][]trigger,
	awaited map[string]bool, when deliveryMode) error {
	done := 0
	for i := range all {
		o := &all[i]
		follows := i > 0 && all[i-1].ContactID == o.ContactID // the event before may have begun the wait for this one
		if done > 0 && done+runsBegunBy(o, begins) > maxRunsAtOnce {
			return s.enqueueDelivery(ctx, tx, all[i:], begins)
		}
		if awaited[o.Name] || follows {
			_, waiting, err := lookUpEvent(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, "")
			if err == nil {
				err = s.wake(ctx, tx, &o.Occurrence, o.event, waiting, when)
			}
			if err != nil {
				return err
			}
			done += len(waiting)
		}
		if err := s.begin(ctx, tx, &o.Occurrence, o.event, begins[o.Name]); err != nil {
			return err
		}
		done += len(begins[o.Name])
	}
	return nil
}

// runsBegunBy returns the number of runs that an event begins. The result is at least 1, because the event may also
// wake runs.
func runsBegunBy(o *occurrence, begins map[string][]trigger) int { return max(1, len(begins[o.Name])) }

// eventBatch is the payload of a beginKind job.
type eventBatch struct {
	Depth  int64          `json:"depth,omitzero"` // number of runs in the chain that caused the events
	Events []batchedEvent `json:"events"`
}

// batchedEvent is an event in an eventBatch.
type batchedEvent struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`
}

// enqueueDelivery enqueues jobs that deliver events. The events in one job begin about maxRunsAtOnce runs, or more if
// they are for one contact. A job keeps the order of a contact's events.
func (s *Service) enqueueDelivery(ctx context.Context, tx *db.Tx, all []occurrence, begins map[string][]trigger) error {
	for len(all) > 0 {
		w := eventBatch{Depth: depthOf(ctx)}
		runs, size := 0, 0
		for i := range all {
			o := &all[i]
			runs, size = runs+runsBegunBy(o, begins), size+len(o.Payload)
			follows := i > 0 && all[i-1].ContactID == o.ContactID
			if i > 0 && (runs > maxRunsAtOnce && !follows || size > maxBatchBytes) {
				break
			}
			w.Events = append(w.Events, batchedEvent{o.Name, o.ContactID, o.Payload, o.At})
		}
		teamID := all[0].TeamID
		all = all[len(w.Events):]
		text, err := json.Marshal(w)
		if err != nil {
			return fmt.Errorf("encode events for automations: %w", err)
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: beginKind, Lane: teamID, TeamID: teamID, Payload: string(text)})
	}
	return nil
}

// deliverQueued handles jobs of the kind beginKind. Events for contacts that were deleted after the job was enqueued
// are skipped.
func (s *Service) deliverQueued(ctx context.Context, j jobs.Job) error {
	var w eventBatch
	if err := json.Unmarshal([]byte(j.Payload), &w); err != nil {
		return fmt.Errorf("read the payload of a job: %w", err)
	}
	if w.Depth > 0 {
		ctx = context.WithValue(ctx, causeKey{}, cause{depth: w.Depth - 1})
	}
	names, contactIDs := map[string]bool{}, map[string]bool{}
	var all []occurrence
	for _, e := range w.Events {
		o := customevents.Occurrence{TeamID: j.TeamID, Name: e.Name, ContactID: e.ContactID, Payload: e.Payload, At: e.At}
		event, err := s.eventOf(&o)
		if err != nil {
			return err
		}
		all = append(all, occurrence{o, event})
		names[e.Name], contactIDs[e.ContactID] = true, true
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, j)
		begins, awaited, err := lookUpEvents(ctx, tx.Reader, j.TeamID, slices.Sorted(maps.Keys(names)))
		if err != nil {
			return err
		}
		known, _, err := s.p.Contacts.Lookup(ctx, tx.Reader, j.TeamID, slices.Sorted(maps.Keys(contactIDs)), nil)
		if err != nil {
			return err
		}
		some := slices.DeleteFunc(slices.Clone(all), func(o occurrence) bool { return !known[o.ContactID] })
		return s.deliverAll(ctx, tx, some, begins, awaited, queued)
	})
}
