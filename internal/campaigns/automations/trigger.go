package automations

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// cause is the run whose step a transaction does, in the context of what it does.
type cause struct {
	runID string
	depth int64
}

type causeKey struct{}

// because returns a context by which the events of a transaction are known to be of a step of a run.
func because(ctx context.Context, r *row) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{r.id, r.depth})
}

// depthOf returns how many runs have led to what a transaction does.
func depthOf(ctx context.Context) int64 {
	if c, ok := ctx.Value(causeKey{}).(cause); ok {
		return c.depth + 1
	}
	return 0
}

// causing returns the run whose step a transaction does, "" if it does none.
func causing(ctx context.Context) string {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c.runID
}

// Happened gives an event to the runs of its contact that wait for it, and begins a run of each enabled automation with a
// trigger for it, in the transaction that stores the event. If the contact has only an address, and the event begins
// something, it is created. What the rules of entry and the limits do not let begin is no error.
func (s *Service) Happened(ctx context.Context, tx *db.Tx, o customevents.Occurrence) error {
	o.Name = events.CanonicalName(o.Name)
	begins, waiting, err := concerned(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, "")
	if err != nil || len(begins) == 0 && len(waiting) == 0 {
		return err
	}
	if o.ContactID == "" {
		at, _, err := s.p.Contacts.UpsertIn(ctx, tx, o.TeamID, o.Address, contacts.Change{})
		if err != nil {
			return err
		}
		o.ContactID = at.ID
	}
	e, err := s.eventOf(&o)
	if err != nil {
		return err
	}
	if err := s.wake(ctx, tx, &o, e, waiting, atOnce); err != nil {
		return err
	}
	return s.begin(ctx, tx, &o, e, begins)
}

func (s *Service) eventOf(o *customevents.Occurrence) (engine.Event, error) {
	payload, err := decodePayload(o.Payload)
	if err != nil {
		return engine.Event{}, fmt.Errorf("read the payload of the event %s: %w", o.Name, err)
	}
	return engine.Event{Name: o.Name, Payload: payload, At: o.At}, nil
}

func decodePayload(text string) (payload map[string]any, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &payload)
	return payload, err
}

// begin begins a run of each of some automations for the contact of an event. Their order is that of their ids, so that
// two transactions do not wait for each other.
func (s *Service) begin(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e engine.Event,
	begins []trigger) error {
	depth := depthOf(ctx)
	for i := range begins {
		t := &begins[i]
		r := &row{id: id.At(tx.Now()), teamID: o.TeamID, automationID: t.automationID, versionID: t.versionID,
			contactID: o.ContactID, epoch: t.epoch, status: Running, event: o.Name, payload: o.Payload, depth: depth,
			eventAt: o.At}
		tooDeep := depth >= maxDepth
		may, err := enter(ctx, tx, t, o.TeamID, o.ContactID, r.id, tooDeep)
		if err != nil {
			return err
		}
		switch {
		case may == refused:
		case may == limited:
			r.status = Failed
			insertRow(ctx, tx, r, TooMany)
		case tooDeep:
			r.status = Failed
			insertRow(ctx, tx, r, TooDeep)
		default:
			if err := s.beginOne(ctx, tx, r, t, e); err != nil {
				return fmt.Errorf("begin a run of automation %s: %w", t.automationID, err)
			}
		}
	}
	return nil
}

// beginOne enters a run behind its trigger, with the job that does its next step. If that waits for an event, the run
// waits for it from the same transaction on.
func (s *Service) beginOne(ctx context.Context, tx *db.Tx, r *row, t *trigger, e engine.Event) error {
	run, kept, err := t.opening.Begin(r.id, e, tx.Now())
	if err != nil {
		return err
	}
	for i := range kept {
		if err := insertStep(ctx, tx, r, &kept[i]); err != nil {
			return err
		}
	}
	r.follow(run)
	if run.At == "" {
		r.status = Completed
		insertRow(ctx, tx, r, "")
		noLonger(ctx, tx, r)
		return nil
	}
	insertRow(ctx, tx, r, "")
	if r.waitFor != "" {
		insertWait(ctx, tx, r, r.waitFor)
	}
	s.p.Queue.Insert(ctx, tx, runJob(r))
	return nil
}

// runJob is the job that does the next step of a run, when it no longer waits.
func runJob(r *row) jobs.New {
	return jobs.New{Kind: runKind, Lane: r.teamID, TeamID: r.teamID, Dedupe: r.id, Payload: r.id, RunAt: r.waitUntil}
}
