package engine

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// trigger is the config of a step at which runs begin.
type trigger struct {
	plain
	event string // as the user wrote it
}

func readTrigger(o jsonread.Object) (config, error) {
	event, err := ReadEventName(o, "event_name")
	return trigger{event: event}, err
}

func (c trigger) plan(m *stepContext) (Action, error) {
	return Action{Output: map[string]any{"event": m.run.Event.Name}}, nil
}

func (c trigger) jsonValue() any { return map[string]any{"event_name": c.event} }

// delay is the config of a step that waits for a fixed duration.
type delay struct {
	plain
	length time.Duration
}

func readDelay(o jsonread.Object) (config, error) {
	if err := o.Renamed("seconds", "duration"); err != nil {
		return nil, err
	}
	if !o.Has("duration") {
		return nil, fault.MissingField(o.At("duration"))
	}
	length, err := readWait(o, "duration")
	return delay{length: length}, err
}

// readWait parses the duration of a wait from a config member.
func readWait(o jsonread.Object, name string) (time.Duration, error) {
	text, err := o.Required(name, 100)
	if err != nil {
		return 0, err
	}
	d, err := schedule.Duration(text)
	switch path := o.At(name); {
	case err != nil:
		return 0, jsonread.Invalidf(path, "cannot be read: %v.", err)
	case d < time.Second || d > MaxWait:
		return 0, jsonread.Invalidf(path, "is %s; a wait lasts from 1 second to %d days.", jsonread.Quote(text),
			int(MaxWait.Hours()/24))
	}
	return d, nil
}

func (c delay) plan(m *stepContext) (Action, error) {
	return waitUntilTime(m.facts.Now.Add(c.length)), nil
}

func (c delay) waitOver(m *stepContext) Action { return Action{Output: untilOutput(m.run.Waits.Until)} }

func (c delay) jsonValue() any { return map[string]any{"duration": schedule.Words(c.length)} }

// waitUntilTime returns an action that waits until the given time.
func waitUntilTime(t time.Time) Action { return Action{Wait: &Wait{Until: t}, Output: untilOutput(t)} }

func untilOutput(t time.Time) map[string]any { return map[string]any{"until": FormatTime(t)} }

// waitForEvent is the config of a step that waits for an event for the contact, up to a timeout.
type waitForEvent struct {
	event   string        // as the user wrote it
	timeout time.Duration // 0 for MaxWait
	rule    *filter.Rule  // rule that the event must match; nil if every event matches
}

// eventFields are the fields that a rule in a wait_for_event step may name: fields of the received event (event.) and
// of the event that began the run (trigger.).
var eventFields = filter.Schema{Open: []string{"event.", "trigger."}, References: true, Unknown: func(string) string {
	return "Here there are `event.KEY`, what the event has, and `trigger.KEY`, what the event has that began the run."
}}

func readWaitForEvent(o jsonread.Object) (config, error) {
	for _, old := range []string{"timeout_seconds", "seconds"} {
		if err := o.Renamed(old, "timeout"); err != nil {
			return nil, err
		}
	}
	c := waitForEvent{}
	var err error
	if c.event, err = ReadEventName(o, "event_name"); err != nil {
		return nil, err
	}
	if o.Has("timeout") {
		if c.timeout, err = readWait(o, "timeout"); err != nil {
			return nil, err
		}
	}
	if !o.Has("filter_rule") {
		return c, nil
	}
	if c.rule, err = filter.ParseAt(o.At("filter_rule"), o.Members["filter_rule"]); err != nil {
		return nil, err
	}
	return c, c.rule.Check(eventFields)
}

func (c waitForEvent) exits() []string { return []string{EventReceived, TimedOut} }

func (c waitForEvent) check(*Graph, string) error { return nil }

func (c waitForEvent) references(string) []Reference { return nil }

func (c waitForEvent) plan(m *stepContext) (Action, error) {
	length := c.timeout
	if length == 0 {
		length = MaxWait
	}
	a := waitUntilTime(m.facts.Now.Add(length))
	a.Wait.Event = events.CanonicalName(c.event)
	a.Output["event"] = c.event
	return a, nil
}

func (c waitForEvent) waitOver(*stepContext) Action {
	return Action{Branch: TimedOut, Output: map[string]any{"event": c.event, "timed_out": true}}
}

// matches reports whether an event matches the step's rule. If the rule cannot be evaluated, matches returns false.
func (c waitForEvent) matches(r *Run, e Event) bool {
	if c.rule == nil {
		return true
	}
	here := &stepContext{run: &Run{Event: e}}
	began := &stepContext{run: r}
	ok, err := c.rule.Match(eventFields, e.At, func(name string) filter.Value {
		if rest, ok := cutTrigger(name); ok {
			return fieldValue(began.lookUp("event." + rest))
		}
		return fieldValue(here.lookUp(name))
	})
	return ok && err == nil
}

// cutTrigger removes the prefix "trigger." from a name, or returns false if the name does not have this prefix.
func cutTrigger(name string) (string, bool) {
	const beginning = "trigger."
	if len(name) <= len(beginning) || name[:len(beginning)] != beginning {
		return "", false
	}
	return name[len(beginning):], true
}

func (c waitForEvent) jsonValue() any {
	w := map[string]any{"event_name": c.event}
	if c.timeout > 0 {
		w["timeout"] = schedule.Words(c.timeout)
	}
	if c.rule != nil {
		w["filter_rule"] = c.rule
	}
	return w
}

// WaitedEvents returns the canonical names of the events that the graph waits for at any step, as a JSON list.
func (g *Graph) WaitedEvents() string {
	names := []string{}
	for _, s := range g.Steps {
		if c, ok := s.config.(waitForEvent); ok {
			names = append(names, events.CanonicalName(c.event))
		}
	}
	slices.Sort(names)
	return string(encode(slices.Compact(names)))
}

// WaitedEvents is like [Graph.WaitedEvents], but for the steps of a stored graph. It reads only the steps' event names,
// which is much faster than [Parse].
func WaitedEvents(steps string) (list string, err error) {
	var all []struct {
		Type   Type `json:"type"`
		Config struct {
			Event string `json:"event_name"`
		} `json:"config"`
	}
	if err := json.Unmarshal([]byte(steps), &all); err != nil {
		return "", err
	}
	g := &Graph{}
	for _, s := range all {
		if s.Type == WaitForEvent {
			g.Steps = append(g.Steps, Step{config: waitForEvent{event: s.Config.Event}})
		}
	}
	return g.WaitedEvents(), nil
}
