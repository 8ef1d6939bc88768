package engine

import (
	"fmt"
	"maps"
	"strings"

	"github.com/postrider/postrider/internal/platform/events"
)

// Reasons why steps fail. Package automations defines more reasons, for failed effects.
const (
	Unresolved        = "value_missing"       // a referenced value does not exist
	WrongValue        = "value_unusable"      // a value is an object, or a list of objects
	NameUnusable      = "name_unusable"       // a first or last name is too long or has line breaks
	NotBoolean        = "value_not_boolean"   // the value for unsubscribed is neither true nor false
	NoProperty        = "property_not_found"  // a contact property does not exist
	PropertyWrongType = "property_wrong_type" // a value cannot be converted exactly to the property's type
	PropertyUnusable  = "property_unusable"   // a value for a contact property is too long or too large
	TooManyVariables  = "variables_too_many"  // an email would have too many variables
	VariablesTooLarge = "variables_too_large" // the variables of an email are too large together
	ReceivedTooLarge  = "received_too_large"  // the received events are too large together
	WebhookTooLarge   = "webhook_too_large"   // the body of a webhook call is too large
	RuleRefused       = "condition_invalid"   // a rule refers to a deleted object
	TooFar            = "too_far_ahead"       // the date to wait for is too far in the future
)

// Reasons why steps are skipped. Package automations defines more reasons, for skipped effects.
const (
	NoContact      = "contact_deleted"
	IsUnsubscribed = "contact_unsubscribed"
	NoDate         = "date_missing"  // the contact has no date to wait for
	BadDate        = "date_unusable" // the value of the contact property is not a date
)

// Begin returns the run that an event begins. The run is at the trigger with the event's name. If no trigger has the
// event's name, Begin returns nil.
func (g *Graph) Begin(id string, e Event) *Run {
	for _, s := range g.Steps {
		if t, ok := s.config.(trigger); ok && events.CanonicalName(t.event) == events.CanonicalName(e.Name) {
			return &Run{ID: id, At: s.Key, Event: e}
		}
	}
	return nil
}

// Plan returns the action of a run's current step at the time f.Now. If the run is already waiting and the wait is not
// over, the action is the same wait. Plan returns any error from f.Fields that is not a fault. Plan also returns an
// error if the run's current step does not exist in the graph.
func (g *Graph) Plan(r *Run, f Facts) (a Action, err error) {
	m := &stepContext{g: g, step: g.step(r.At), run: r, facts: f}
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
		a = w.waitOver(m)
	}
	if a.Step = m.step; a.Wait == nil && a.Failure == nil && a.Branch == "" {
		a.Branch = Default
	}
	return a, nil
}

// Done advances a run past the step of an action and returns the step's record. For an action without an effect, pass
// the zero Outcome. If r.At is empty after the call, the run has ended; if the record has a failure, the run has
// failed.
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

// Receive delivers an event to a run and reports whether the event ends the run's wait. If the wait ends, Receive
// advances the run to the next step and returns the record of the step that was waiting. An event at or after the end
// of the wait has no effect. The run stores only those payload members of the event that steps refer to. If all stored
// members together exceed MaxReceived, the step fails.
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
	if kept, refers := g.trimToReferences(s.Key, c, e); refers {
		received := maps.Clone(r.Received)
		if received == nil {
			received = map[string]Event{}
		}
		received[s.Key] = kept
		if payloadBytes(received) > MaxReceived {
			r.At = ""
			rec.Status, rec.Failure = StepFailed, &Failure{ReceivedTooLarge, fmt.Sprintf("The values that later "+
				"steps use from received events have more than %d KB of JSON. Send smaller events, or use fewer values.",
				MaxReceived>>10)}
			return rec, true
		}
		r.Received = received
	}
	r.At = g.next[exit{s.Key, EventReceived}]
	return rec, true
}

// trimToReferences returns an event with only those payload members that steps refer to, or false if no step refers to
// the event.
func (g *Graph) trimToReferences(key string, c waitForEvent, e Event) (kept Event, refers bool) {
	kept = Event{Name: e.Name, At: e.At}
	for _, path := range g.waitPaths {
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

// payloadBytes returns the total size of the JSON payloads of the received events, in bytes.
func payloadBytes(received map[string]Event) (size int) {
	for _, e := range received {
		size += len(encode(e.Payload))
	}
	return size
}

// merge returns a map with the members of both maps, without changing either of them.
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
