package automations

import (
	"context"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/contacts"
	"github.com/postrider/postrider/internal/customevents"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/flow"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/jobs"
)

// wakeKind is the kind of the jobs that give an event to the rest of the runs that wait for it.
const wakeKind = "automations.wake"

// waitsMost is how many waiting runs one transaction gives an event to.
const waitsMost = 100

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
	o.Name = flow.Canonical(o.Name)
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
	if err := s.wake(ctx, tx, &o, e, waiting); err != nil {
		return err
	}
	return s.begin(ctx, tx, &o, e, begins)
}

func (s *Service) eventOf(o *customevents.Occurrence) (flow.Event, error) {
	payload, err := decodePayload(o.Payload)
	if err != nil {
		return flow.Event{}, fmt.Errorf("read the payload of the event %s: %w", o.Name, err)
	}
	return flow.Event{Name: o.Name, Payload: payload, At: o.At}, nil
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
func (s *Service) begin(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e flow.Event,
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
			if err := s.beginOne(ctx, tx, r, e); err != nil {
				return fmt.Errorf("begin a run of automation %s: %w", t.automationID, err)
			}
		}
	}
	return nil
}

// beginOne enters a run behind its trigger, with the job that does its first step.
func (s *Service) beginOne(ctx context.Context, tx *db.Tx, r *row, e flow.Event) error {
	g, err := s.versions.get(ctx, tx.Reader, r.teamID, r.versionID)
	if err != nil {
		return err
	}
	run, facts := g.Begin(r.id, e), flow.Facts{Now: tx.Now()}
	if run == nil {
		return fmt.Errorf("version %s has no trigger for the event %s", r.versionID, e.Name)
	}
	a, err := g.Plan(run, facts)
	if err != nil {
		return err
	}
	rec := g.Done(run, a, flow.Outcome{}, facts)
	r.step = run.At
	if err := insertStep(ctx, tx, r, &rec); err != nil {
		return err
	}
	if run.At != "" {
		insertRow(ctx, tx, r, "")
		s.p.Queue.Insert(ctx, tx, runJob(r))
		return nil
	}
	r.status = Completed
	insertRow(ctx, tx, r, "")
	noLonger(ctx, tx, r)
	return nil
}

// runJob is the job that does the next step of a run.
func runJob(r *row) jobs.New {
	return jobs.New{Kind: runKind, Lane: r.teamID, TeamID: r.teamID, Dedupe: r.id, Payload: r.id}
}

// waking is the payload of a job of wakeKind.
type waking struct {
	Name      string    `json:"name"`
	ContactID string    `json:"contact"`
	Payload   string    `json:"payload"`
	At        time.Time `json:"at"`
	After     string    `json:"after"` // the last run that has the event already
}

// wake gives an event to runs that wait for it. Those beyond waitsMost are left to a job.
func (s *Service) wake(ctx context.Context, tx *db.Tx, o *customevents.Occurrence, e flow.Event, runIDs []string) error {
	if len(runIDs) == 0 {
		return nil
	}
	if len(runIDs) > waitsMost {
		runIDs = runIDs[:waitsMost]
		text, err := json.Marshal(waking{o.Name, o.ContactID, o.Payload, o.At, runIDs[waitsMost-1]})
		if err != nil {
			return fmt.Errorf("encode an event for runs that wait: %w", err)
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: wakeKind, Lane: o.TeamID, TeamID: o.TeamID, Payload: string(text)})
	}
	all, err := lockRows(ctx, tx, o.TeamID, runIDs)
	if err != nil {
		return err
	}
	for i := range all {
		r := &all[i]
		if r.waitFor != o.Name || r.stale() != "" { // it has just gone on, or is about to end
			continue
		}
		if err := s.give(ctx, tx, r, e); err != nil {
			return fmt.Errorf("give an event to run %s: %w", r.id, err)
		}
	}
	return nil
}

// give gives an event to a run that waits for one of its name and is locked.
func (s *Service) give(ctx context.Context, tx *db.Tx, r *row, e flow.Event) error {
	g, err := s.versions.get(ctx, tx.Reader, r.teamID, r.versionID)
	if err != nil {
		return err
	}
	run, err := r.run()
	if err != nil {
		return err
	}
	rec, received := g.Receive(run, e)
	if !received {
		return nil
	}
	if err := updateStep(ctx, tx, r, &rec); err != nil {
		return err
	}
	deleteWait(ctx, tx, r, r.waitFor)
	if err := r.follow(run); err != nil {
		return err
	}
	if run.At == "" {
		endRow(ctx, tx, r, Completed, "")
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
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		_, waiting, err := concerned(ctx, tx.Reader, o.TeamID, o.Name, o.ContactID, w.After)
		if err != nil {
			return err
		}
		s.p.Queue.Finish(ctx, tx, j)
		return s.wake(ctx, tx, &o, e, waiting)
	})
}
