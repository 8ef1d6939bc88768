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

// beginKind is the kind of the jobs that give events to automations which were recorded together with very many others.
const beginKind = "automations.begin"

const (
	// runsMost is how many runs begin or receive an event in one transaction that records many events: some 10 ms of
	// SQLite's only writer. One event alone may concern more.
	runsMost = 100
	// laterOctets is about how large the payload of a job with events is.
	laterOctets = 128 << 10
)

// occurrence is an event of a contact as it is stored, and as the engine knows it.
type occurrence struct {
	customevents.Occurrence
	event engine.Event
}

// spread gives events of contacts of a team, in the order of the contacts' ids, to automations. What would begin or wake
// more than runsMost runs is left to jobs, which the transaction stores.
func (s *Service) spread(ctx context.Context, tx *db.Tx, all []occurrence, begins map[string][]trigger,
	awaited map[string]bool, when timing) error {
	done := 0
	for i := range all {
		o := &all[i]
		if done > 0 && done+weight(o, begins) > runsMost {
			return s.tellLater(ctx, tx, all[i:], begins)
		}
		if awaited[o.Name] {
			_, waiting, err := concerned(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, "")
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

// weight is how many runs an event begins, one at least for what it may wake.
func weight(o *occurrence, begins map[string][]trigger) int { return max(1, len(begins[o.Name])) }

// telling is the payload of a job of beginKind.
type telling struct {
	Depth  int64  `json:"depth,omitzero"` // how many runs have led to the events
	Events []told `json:"events"`
}

// told is an event in it.
type told struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`
}

// tellLater leaves events to jobs, each with some that begin about runsMost runs.
func (s *Service) tellLater(ctx context.Context, tx *db.Tx, all []occurrence, begins map[string][]trigger) error {
	for len(all) > 0 {
		w := telling{Depth: depthOf(ctx)}
		runs, octets := 0, 0
		for i := range all {
			o := &all[i]
			runs, octets = runs+weight(o, begins), octets+len(o.Payload)
			if i > 0 && (runs > runsMost || octets > laterOctets) {
				break
			}
			w.Events = append(w.Events, told{o.Name, o.ContactID, o.Payload, o.At})
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

// tellRest is the handler of the jobs of beginKind. Contacts that were deleted since are left out.
func (s *Service) tellRest(ctx context.Context, j jobs.Job) error {
	var w telling
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
		begins, awaited, err := eventsConcerned(ctx, tx.Reader, j.TeamID, slices.Sorted(maps.Keys(names)))
		if err != nil {
			return err
		}
		known, _, err := s.p.Contacts.Lookup(ctx, tx.Reader, j.TeamID, slices.Sorted(maps.Keys(contactIDs)), nil)
		if err != nil {
			return err
		}
		some := slices.DeleteFunc(slices.Clone(all), func(o occurrence) bool { return !known[o.ContactID] })
		return s.spread(ctx, tx, some, begins, awaited, late)
	})
}
