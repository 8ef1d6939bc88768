package automations_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
)

// simulationLines formats a simulation's report like runLines and appends the failure message.
func simulationLines(r *simulate.Report) string {
	run := automations.Run{Status: automations.RunStatus(r.Status), Reason: automations.Reason(r.Reason)}
	for _, e := range r.Entries {
		if e.Step == "" || e.Status == simulate.Text(engine.StepWaiting) {
			continue
		}
		s := automations.RunStep{Key: string(e.Step), Status: engine.Status(e.Status), Output: e.Output}
		if e.Reason != "" {
			s.Failure = &engine.Failure{Reason: string(e.Reason)}
		}
		run.Steps = append(run.Steps, s)
	}
	return runLines(run) + " " + string(r.Message)
}

// simulated is a test case that compares a run with its simulation.
type simulated struct {
	name, by string // the field by is the connection type after the second step; "" for the default
	steps    []string
	payload  string
	change   *contacts.Change // change made to the contact during the run
	changed  string           // the same change, in the form used in scenarios
	harm     func()           // deletes an object before the run
}

// A simulation has the same result as the real run.
func TestSimulationIsTheRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for _, p := range []contacts.NewProperty{
			{Name: "seats", Type: scalar.Number, Fallback: scalar.OfNumber(7)}, {Name: "plan", Type: scalar.String},
		} {
			_, err := s.Contacts.CreateProperty(ctx, team, p)
			s.Must(err)
		}
		in, out := s.topic("In", contacts.OptIn), s.topic("Out", contacts.OptOut)
		g, err := s.Contacts.Segments.Create(ctx, team, segments.Definition{Name: "Plain"})
		s.Must(err)
		mail := func(key, topic string) string {
			return step(key, engine.SendEmail, fmt.Sprintf(`{"template": {"id": "hello"}, "topic_id": %q}`, topic))
		}
		asks := func(key, rule string) string { return step(key, engine.Condition, rule) }
		waits := func(key, event string) string {
			return step(key, engine.WaitForEvent, fmt.Sprintf(`{"event_name": %q, "timeout": "1 day"}`, event))
		}
		set := func(key, config string) string { return step(key, engine.ContactUpdate, config) }
		for i, c := range []simulated{
			{name: "topics", steps: []string{mail("a", out), mail("b", in)}},
			{name: "the default of a topic", by: engine.ConditionMet, steps: []string{asks("a",
				`{"type": "rule", "field": "contact.topics.`+out+`", "operator": "eq", "value": "opt_out"}`), sends("b")}},
			{name: "a fallback", steps: []string{set("a", `{"first_name": {"var": "properties.seats"}}`),
				asks("b", `{"type": "rule", "field": "contact.properties.seats", "operator": "is_empty"}`)}},
			{name: "a text for a number", steps: []string{set("a", `{"properties": {"seats": {"var": "event.n"}}}`)},
				payload: `{"n": "5"}`},
			{name: "a list of objects", steps: []string{set("a", `{"properties": {"plan": {"var": "event.n"}}}`)},
				payload: `{"n": [{"x": 1}]}`},
			{name: "a number", by: engine.ConditionMet, steps: []string{asks("a",
				`{"type": "rule", "field": "contact.engagement.mailed", "operator": "eq", "value": 0}`), sends("b"),
				asks("c", `{"type": "rule", "field": "contact.engagement.mailed", "operator": "eq", "value": 1}`)}},
			{name: "a change", by: engine.EventReceived, steps: []string{waits("a", "postrider:contact.updated"),
				sends("b")}, change: &contacts.Change{FirstName: new("Bo")}, changed: `{"first_name": "Bo"}`},
			{name: "unsubscribing", by: engine.EventReceived, steps: []string{waits("a", "postrider:contact.unsubscribed"),
				sends("b")}, change: &contacts.Change{Unsubscribed: new(true)}, changed: `{"unsubscribed": true}`},
			{name: "nothing new", by: engine.EventReceived, steps: []string{waits("a", "postrider:contact.updated"),
				sends("b")}, change: &contacts.Change{Unsubscribed: new(false)}, changed: `{"unsubscribed": false}`},
			{name: "its own change", steps: []string{set("a", `{"first_name": "Bo"}`),
				waits("b", "postrider:contact.updated")}},
			{name: "a segment that is deleted", steps: []string{step("a", engine.AddToSegment,
				fmt.Sprintf(`{"segment_id": %q}`, g.ID))}, harm: func() { s.Must(s.Contacts.Segments.Delete(ctx, team, g.ID)) }},
			{name: "a topic that is deleted", steps: []string{mail("a", in)},
				harm: func() { s.Must(s.Contacts.DeleteTopic(ctx, team, in)) }},
			{name: "a rule with it", steps: []string{asks("a",
				`{"type": "rule", "field": "contact.topics.`+out+`", "operator": "eq", "value": "opt_out"}`)},
				harm: func() { s.Must(s.Contacts.DeleteTopic(ctx, team, out)) }},
		} {
			s.compareWithSimulation(i, &c)
		}
	})
}

// compareWithSimulation runs an automation and its simulation, and compares their results.
func (s *fixture) compareWithSimulation(i int, c *simulated) {
	s.T.Helper()
	ctx, team := s.T.Context(), s.Acme.TeamID
	event, address := fmt.Sprint("event", i), fmt.Sprintf("c%d@reader.example", i)
	all := append([]string{trigger(event)}, c.steps...)
	keys := []string{"start", "a", "b", "c"}[:len(all)]
	var connected []string
	for k := range keys[1:] {
		by := engine.Default
		if k == 1 && c.by != "" {
			by = c.by
		}
		connected = append(connected, keys[k]+" "+keys[k+1]+" "+by)
	}
	automation := s.graph(automations.NewAutomation{}, links(connected...), all...)
	if c.harm != nil {
		c.harm()
		s.pass(2 * time.Second)
	}
	contact := s.contact(address)
	s.happens(event, contact, c.payload)
	s.work()
	if c.change != nil {
		_, err := s.Contacts.Update(ctx, team, contact, *c.change)
		s.Must(err)
	}
	s.work()
	s.pass(25 * time.Hour)
	s.work()
	r := s.runs(automation)[0]
	want := runLines(r) + " " + r.Message

	payload, timetable := "{}", "[]"
	if c.payload != "" {
		payload = c.payload
	}
	if c.changed != "" {
		timetable = `[{"at": "in 1 hour", "contact": ` + c.changed + `}]`
	}
	report, err := s.a.Simulate(ctx, team, automations.Simulation{AutomationID: automation,
		Scenario: []byte(fmt.Sprintf(`{"contact": {"email": %q}, "event": {"payload": %s}, "timetable": %s}`, address,
			payload, timetable))})
	s.Must(err)
	if diff := cmp.Diff(want, simulationLines(report)); diff != "" {
		s.T.Errorf("%s: the run and its simulation (-run +simulation):\n%s", c.name, diff)
	}
}
