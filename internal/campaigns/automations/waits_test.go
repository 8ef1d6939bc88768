package automations_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
)

// If a second wait follows a first wait directly, the event that ends the first wait also begins the second wait. The
// second wait therefore receives the next event, even if no job has run in between. A split and a condition about
// events between two waits do not delay the second one.
func TestWaitsInSuccession(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		wait := func(key, event string) string {
			return step(key, engine.WaitForEvent, `{"event_name": "`+event+`", "timeout": "1 hour"}`)
		}
		direct := s.graph(automations.NewAutomation{}, links("start a", "a b event_received", "b c event_received"),
			trigger("go"), wait("a", "paid"), wait("b", "sent"), wait("c", "sent"))
		between := s.graph(automations.NewAutomation{}, links("start a", "a half event_received", "half if x", "half if y",
			"if b condition_met"), trigger("go"), wait("a", "paid"), step("half", engine.Split, `{"branches":
			[{"name": "x", "percent": 50}, {"name": "y", "percent": 50}]}`), step("if", engine.Condition,
			`{"type": "rule", "field": "event.vip", "operator": "eq", "value": true}`), wait("b", "sent"))
		last := s.graph(automations.NewAutomation{}, links("start a", "a if event_received"), trigger("go"),
			wait("a", "paid"), step("if", engine.Condition, `{"type": "rule", "field": "event.vip", "operator": "eq",
			"value": true}`))
		delayed := s.graph(automations.NewAutomation{}, links("start a", "a d event_received", "d mail"), trigger("go"),
			wait("a", "paid"), step("d", engine.Delay, `{"duration": "1 hour"}`), sends("mail"))
		contact := s.contact(ann)
		s.happens("go", contact, `{"vip": true}`)
		s.Must(s.a.LoadWaiting(t.Context(), s.Acme.TeamID, "paid", contact))
		s.happens("paid", contact, "")
		s.mustRun(direct, "running: start a b=waiting")
		s.mustRun(between, "running: start a half if b=waiting")
		s.mustRun(last, "completed: start a if")
		s.mustRun(delayed, "running: start a d=waiting")
		if all := s.due(); len(all) > 0 {
			t.Errorf("jobs are due for waits that have just begun: %v", all)
		}
		s.happens("sent", contact, "")
		s.mustRun(direct, "running: start a b c=waiting")
		s.mustRun(between, "completed: start a half if b")
		s.pass(2 * time.Hour)
		s.work()
		s.mustRun(direct, "completed: start a b c")
		s.mustRun(delayed, "completed: start a d mail")
	})
}

// An event sent through package customevents reaches the waits in succession of a run, even if no graph is cached.
func TestWaitsInSuccessionOnANewNode(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.graph(automations.NewAutomation{}, links("start a", "a b event_received"), trigger("go"),
			step("a", engine.WaitForEvent, `{"event_name": "paid"}`), step("b", engine.WaitForEvent,
				`{"event_name": "sent"}`))
		s.CustomEvents.BeforeEvent = s.a.LoadWaiting
		for _, event := range []string{"go", "paid", "sent"} {
			s.Must(s.CustomEvents.Send(t.Context(), s.Acme.TeamID, customevents.NewEvent{Event: event, Address: ann}))
		}
		s.mustRun(id, "completed: start a b")
	})
}

// Every form of a date that an event's schema accepts is also a date in conditions and for wait_until.
func TestDatesAreTheSameEverywhere(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		_, err := s.CustomEvents.Create(ctx, team, "go", customevents.Schema{"at": customevents.Date})
		s.Must(err)
		_, err = s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "due", Type: scalar.String})
		s.Must(err)
		id := s.graph(automations.NewAutomation{}, links("start if", "if set condition_met", "set until"), trigger("go"),
			step("if", engine.Condition, `{"type": "and", "rules": [
			{"type": "rule", "field": "event.at", "operator": "after", "value": "2020-01-01 00:00"},
			{"type": "rule", "field": "event.at", "operator": "before", "value": {"var": "event.end"}}]}`),
			step("set", engine.ContactUpdate, `{"properties": {"due": {"var": "event.at"}}}`),
			step("until", engine.WaitUntil, `{"property": "due"}`))
		forms := []string{"2021-02-03", "2021-02-03T04:05:06Z", "2021-02-03T04:05+01:00", "2021-02-03T04:05:06",
			"2021-02-03T04:05", "2021-02-03 04:05:06.5+00", "2021-02-03 04:05"}
		for _, form := range forms {
			s.Must(s.CustomEvents.Send(ctx, team, customevents.NewEvent{Event: "go", Address: ann,
				Payload: []byte(`{"at": "` + form + `", "end": "2022-01-01T00:00"}`)}))
			s.work()
		}
		for i, r := range s.runs(id) {
			if got := runLines(r); got != "completed: start if set until" {
				t.Errorf("%s: %s", forms[i], got)
			}
		}
		if n := len(s.runs(id)); n != len(forms) {
			t.Errorf("%d runs", n)
		}
	})
}
