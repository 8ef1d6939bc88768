package automations_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

const ann = "ann@reader.example"

// welcome creates an automation with emails, a delay, a condition, and a step that waits for an event.
func (s *fixture) welcome() string {
	s.T.Helper()
	s.template("tips", "Tips")
	s.template("thanks", "Thanks")
	s.template("nudge", "Nudge")
	email := func(key, template string) string {
		return step(key, engine.SendEmail, `{"template": {"id": "`+template+`"}}`)
	}
	return s.graph(automations.NewAutomation{}, links("start hello", "hello day", "day paid", "paid thanks condition_met",
		"paid tips condition_not_met", "tips order", "order thanks event_received", "order nudge timeout"),
		trigger("signed_up"), email("hello", "hello"), step("day", engine.Delay, `{"duration": "1 day"}`),
		step("paid", engine.Condition, `{"type": "rule", "field": "event.plan", "operator": "eq", "value": "pro"}`),
		email("tips", "tips"), step("order", engine.WaitForEvent, `{"event_name": "ordered", "timeout": "3 days"}`),
		email("thanks", "thanks"), email("nudge", "nudge"))
}

func TestWelcomeSeries(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.welcome()
		s.happens("signed_up", ann, `{"plan": "pro"}`)
		s.happens("signed_up", "bob@reader.example", `{"plan": "free"}`)
		s.happens("signed_up", "cat@reader.example", "")
		s.work()
		s.mustRun(id, "running: start hello day=waiting", "running: start hello day=waiting",
			"running: start hello day=waiting")
		s.pass(23 * time.Hour)
		s.work()
		if got := s.mailed(ann); !slices.Equal(got, []string{"Hello"}) {
			t.Errorf("before the day is over %q", got)
		}
		s.pass(2 * time.Hour)
		s.work()
		s.mustRun(id, "completed: start hello day paid thanks", "running: start hello day paid tips order=waiting",
			"running: start hello day paid tips order=waiting")
		r := s.runs(id)[1]
		if left := r.WaitsUntil.Sub(s.DB.Now()); r.Step != "order" || r.WaitsFor != "ordered" ||
			left < 71*time.Hour || left > 73*time.Hour {
			t.Errorf("it waits at %q for %q, %s more", r.Step, r.WaitsFor, left)
		}
		s.happens("ordered", s.contact("bob@reader.example"), `{"sum": 5}`)
		s.work()
		s.pass(4 * 24 * time.Hour)
		s.happens("ordered", s.contact("cat@reader.example"), `{"sum": 5}`) // too late
		s.work()
		s.mustRun(id, "completed: start hello day paid thanks", "completed: start hello day paid tips order thanks",
			"completed: start hello day paid tips order nudge")
		for address, want := range map[string][]string{ann: {"Hello", "Thanks"},
			"bob@reader.example": {"Hello", "Tips", "Thanks"}, "cat@reader.example": {"Hello", "Tips", "Nudge"}} {
			if got := s.mailed(address); !slices.Equal(got, want) {
				t.Errorf("%s got %q and not %q", address, got, want)
			}
		}
	})
}
