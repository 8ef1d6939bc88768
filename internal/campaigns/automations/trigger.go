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

// cause is a context value that identifies the run whose step causes the events in a transaction.
type cause struct {
	runID string
	depth int64
}

type causeKey struct{}

// withCause returns a context which records that a step of run r causes the events in a transaction.
func withCause(ctx context.Context, r *row) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{r.id, r.depth})
}

// depthOf returns the number of runs in the chain that caused the events in a transaction.
func depthOf(ctx context.Context) int64 {
	if c, ok := ctx.Value(causeKey{}).(cause); ok {
		return c.depth + 1
	}
	return 0
}

// causeOf returns the id of the run whose step causes the events in a transaction, or "" if no run causes the events.
func causeOf(ctx context.Context) string {
	c, _ := ctx.Value(causeKey{}).(cause)
	return c.runID
}

// OnEvent delivers an event to its contact's waiting runs, and begins a run of each enabled automation that the event
// triggers. Call OnEvent in the transaction that stores the event. If the event has only an address and triggers an
// automation, OnEvent creates the contact. OnEvent does not return an error if the reentry rule or a limit prevents a
// run from beginning.
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

// begin begins a run of each given automation for an event's contact. The automations must be sorted by id, so that two
// transactions do not deadlock.
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

// beginOne inserts a run with a completed trigger step, and the job that carries out the next step. If the next step
// waits for an event, the run can receive that event as soon as the transaction commits.
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

// runJob returns the job that carries out a run's next step when the run's wait ends.
func runJob(r *row) jobs.New {
	return jobs.New{Kind: runKind, Lane: r.teamID, TeamID: r.teamID, Dedupe: r.id, Payload: r.id, RunAt: r.waitUntil}
}
