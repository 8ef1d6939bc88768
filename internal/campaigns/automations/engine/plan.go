package engine

import (
	"fmt"
	"maps"
	"strings"

	"github.com/postrider/postrider/internal/platform/events"
)

// Reasons for which steps fail. Those of effects are the caller's.
const (
	Unresolved  = "value_missing"     // a reference to a value that is not there
	WrongValue  = "value_unusable"    // a value that is not of the kind that is needed
	TooLarge    = "too_large"         // values that are too many or too long together
	RuleRefused = "condition_invalid" // a rule that names what has been deleted since
	TooFar      = "too_far_ahead"     // a date to wait for
)

// Reasons for which steps are skipped. Those of effects are the caller's.
const (
	NoContact      = "contact_deleted"
	IsUnsubscribed = "contact_unsubscribed"
	NoDate         = "date_missing"  // to wait for
	BadDate        = "date_unusable" // to wait for
)

// Begin returns the run that an event begins: it is at the trigger with the event's name. It is nil if there is none.
func (g *Graph) Begin(id string, e Event) *Run {
	for _, s := range g.Steps {
		if t, ok := s.config.(trigger); ok && events.CanonicalName(t.event) == events.CanonicalName(e.Name) {
			return &Run{ID: id, At: s.Key, Event: e}
		}
	}
	return nil
}

// Plan returns what the step that a run is at does now. A run that waits goes on when its time has come; before, it
// waits on. Its errors are those of f.Fields, and that the graph has no such step.
func (g *Graph) Plan(r *Run, f Facts) (a Action, err error) {
	m := &moment{g: g, step: g.step(r.At), run: r, facts: f}
	if m.step == nil {
		return a, fmt.Errorf("run %s is at the step %q, which its graph does not have", r.ID, r.At)
	}
	w, ok := m.step.config.(waiter)
	switch {
	case r.Waits == nil || !ok:
		if a, err = m.step.config.plan(m); err != nil {
			return Action{}, fmt.Errorf("plan the step %q: %w", r.At, err)
		}
	case f.Now.Before(r.Waits.Until):
		a.Wait = r.Waits
	default:
		a = w.over(m)
	}
	if a.Step = m.step; a.Wait == nil && a.Failure == nil && a.Branch == "" {
		a.Branch = Default
	}
	return a, nil
}

// Done moves a run on from the step of an action, whose outcome is the zero Outcome if it has no effect. It returns
// what is to be kept of the step. When r.At is "" afterwards, the run has ended: as failed if the record has a failure.
func (g *Graph) Done(r *Run, a Action, o Outcome, f Facts) Record {
	rec := Record{Key: a.Step.Key, Type: a.Step.Type, Status: StepCompleted, Output: merge(a.Output, o.Output)}
	if r.Waits == nil {
		rec.StartedAt = f.Now
	}
	if a.Wait != nil {
		r.Waits = a.Wait
		rec.Status = StepWaiting
		return rec
	}
	rec.CompletedAt = f.Now
	r.Waits = nil
	why := a.Skipped
	if why == "" {
		why = o.Skipped
	}
	if rec.Failure = a.Failure; rec.Failure == nil {
		rec.Failure = o.Failure
	}
	switch {
	case rec.Failure != nil:
		rec.Status = StepFailed
		r.At = ""
		return rec
	case why != "":
		rec.Status = StepSkipped
		rec.Output = merge(rec.Output, map[string]any{"reason": why})
	}
	r.At = g.next[exit{a.Step.Key, a.Branch}]
	return rec
}

// Receive gives an event to a run, and reports whether it ends the run's wait. If it does, the run has moved on, and
// the record is that of the step that waited. An event at the time at which the wait ends, or later, comes too late. The
// run keeps of the event what some step refers to. If that is too much with what it has kept before, the step fails.
func (g *Graph) Receive(r *Run, e Event) (rec Record, ok bool) {
	s := g.step(r.At)
	if s == nil || r.Waits == nil || r.Waits.Event == "" || r.Waits.Event != events.CanonicalName(e.Name) ||
		!e.At.Before(r.Waits.Until) {
		return rec, false
	}
	c, ok := s.config.(waitForEvent)
	if !ok || !c.matches(r, e) {
		return rec, false
	}
	r.Waits = nil
	rec = Record{Key: s.Key, Type: s.Type, Status: StepCompleted, CompletedAt: e.At,
		Output: map[string]any{"event": e.Name, "payload": e.Payload}}
	if kept, refers := g.kept(s.Key, c, e); refers {
		received := maps.Clone(r.Received)
		if received == nil {
			received = map[string]Event{}
		}
		received[s.Key] = kept
		if sizeOf(received) > MaxReceived {
			r.At = ""
			rec.Status, rec.Failure = StepFailed, &Failure{TooLarge, fmt.Sprintf("What later steps name of the events "+
				"that the run waited for has more than %d KB of JSON. Send less in them, or name less.", MaxReceived>>10)}
			return rec, true
		}
		r.Received = received
	}
	r.At = g.next[exit{s.Key, EventReceived}]
	return rec, true
}

// kept returns an event that a step received with those members of its payload that steps can refer to. It reports false
// if none refers to the event.
func (g *Graph) kept(key string, c waitForEvent, e Event) (kept Event, refers bool) {
	kept = Event{Name: e.Name, At: e.At}
	for _, path := range g.reads {
		for _, head := range []string{key, c.event, e.Name} {
			rest, ok := strings.CutPrefix(path, head+".")
			if !ok {
				continue
			}
			refers = true
			for name, v := range e.Payload {
				if more, ok := strings.CutPrefix(rest, name); ok && (more == "" || more[0] == '.') {
					if kept.Payload == nil {
						kept.Payload = map[string]any{}
					}
					kept.Payload[name] = v
				}
			}
		}
	}
	return kept, refers
}

// sizeOf is how many octets of JSON the payloads of events have.
func sizeOf(received map[string]Event) (octets int) {
	for _, e := range received {
		octets += len(encode(e.Payload))
	}
	return octets
}

// merge returns the members of both, nil if there are none.
func merge(a, b map[string]any) map[string]any {
	if len(b) == 0 {
		return a
	}
	all := maps.Clone(a)
	if all == nil {
		all = map[string]any{}
	}
	maps.Copy(all, b)
	return all
}
