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

// cause is the run whose step causes what a transaction does. It is stored in the context.
type cause struct {
	runID string
	depth int64
}

type causeKey struct{}

// withCause returns a context that says that a step of run r causes the events of a transaction.
func withCause(ctx context.Context, r *row) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{r.id, r.depth})
}

// depthOf returns the number of runs in the chain that led to what a transaction does.
func depthOf(ctx context.Context) int64 {
	if c, ok := ctx.Value(causeKey{}).(cause); ok {
		return c.depth + 1
	}
	return 0
}

// causeOf returns the id of the run whose step causes what a transaction does, or "".
func causeOf(ctx context.Context) string {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c.runID
}

// OnEvent delivers an event to the waiting runs of its contact, and begins a run of each enabled automation that it
// triggers. It does so in the transaction that stores the event. If the event has only an address and triggers
// something, OnEvent creates the contact. Events that the reentry rule or a limit refuses are not errors.
func (s *Service) OnEvent(ctx context.Context, tx *db.Tx, o customevents.Occurrence) error {
	o.Name = events.CanonicalName(o.Name)
	begins, waiting, err := lookUpEvent(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, "")
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
	if err := s.wake(ctx, tx, &o, e, waiting, immediate); err != nil {
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

// begin begins a run of each given automation for the contact of an event. The automations are in the order of their
// ids, so that two transactions do not deadlock.
func (s *Service) begin(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e engine.Event,
	begins []trigger) error {
	depth := depthOf(ctx)
	for i := range begins {
		t := &begins[i]
		r := &row{id: id.At(tx.Now()), teamID: o.TeamID, automationID: t.automationID, versionID: t.versionID,
			contactID: o.ContactID, epoch: t.epoch, status: Running, event: o.Name, payload: o.Payload, depth: depth,
			eventAt: o.At}
		tooDeep := depth >= maxDepth
		may, err := admit(ctx, tx, t, o.TeamID, o.ContactID, r.id, tooDeep)
		if err != nil {
			return err
		}
		switch {
		case may == notAdmitted:
		case may == overLimit:
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

// beginOne inserts a run that is past its trigger, and the job that does its next step. If that step waits for an
// event, the run receives events from this transaction on.
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
	r.setProgress(run)
	if run.At == "" {
		r.status = Completed
		insertRow(ctx, tx, r, "")
		countRunEnded(ctx, tx, r)
		return nil
	}
	insertRow(ctx, tx, r, "")
	if r.waitFor != "" {
		insertWait(ctx, tx, r, r.waitFor)
	}
	s.p.Queue.Insert(ctx, tx, runJob(r))
	return nil
}

// runJob returns the job that does the next step of a run when its wait is over.
func runJob(r *row) jobs.New {
	return jobs.New{Kind: runKind, Lane: r.teamID, TeamID: r.teamID, Dedupe: r.id, Payload: r.id, RunAt: r.waitUntil}
}
