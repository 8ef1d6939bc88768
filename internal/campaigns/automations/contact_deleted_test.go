package automations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// kept returns the personal data that is still stored in a contact's runs.
func (s *fixture) kept(contactID string) (all []string) {
	s.T.Helper()
	for after, first := "", true; first || after != ""; first = false {
		some, next, err := s.a.RunsOfContact(s.T.Context(), s.Acme.TeamID, contactID, after)
		s.Must(err)
		for _, r := range some {
			all = append(all, r.Payload, r.Received)
			for _, step := range r.Steps {
				if len(step.Output) > 0 {
					all = append(all, fmt.Sprint(step.Output))
				}
				if step.Failure != nil && step.Status == engine.StepFailed {
					all = append(all, step.Failure.Message)
				}
			}
		}
		after = next
	}
	return slices.DeleteFunc(all, func(text string) bool {
		return text == "" || strings.HasPrefix(text, "The contact was deleted, and ")
	})
}

// Deleting a contact erases its data from all its runs, whether active or ended. The results of the deleted contact's
// runs are kept, and other contacts' runs stay unchanged.
func TestForgottenWithTheContact(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.graph(automations.NewAutomation{}, links("start wait", "wait call event_received", "call day"),
			trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`),
			step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`),
			step("day", engine.Delay, `{"duration": "1 day"}`))
		a, b := s.contact(ann), s.contact("bob@reader.example")
		for _, status := range []int{200, 404} {
			s.answer = func() (int, error) { return status, nil }
			for _, c := range []string{a, b} {
				s.happens("go", c, `{"phone": "+49 30 1234"}`)
			}
			s.work()
			for _, c := range []string{a, b} {
				s.happens("paid", c, `{"name": "Ann Smith"}`)
			}
			s.work()
		}
		s.happens("go", a, `{"phone": "+49 30 1234"}`)
		s.work()
		before := s.kept(b)
		_, err := s.Contacts.Delete(ctx, team, a)
		s.Must(err)
		if got := s.kept(a); len(got) > 0 {
			t.Errorf("kept are %q", got)
		}
		if got := s.kept(b); !slices.Equal(got, before) || len(got) < 8 {
			t.Errorf("of another contact are kept %q", got)
		}
		s.mustRun(id, "cancelled(contact_deleted): start wait call day=skipped(contact_deleted)",
			"running: start wait call day=waiting", "failed(webhook_failed): start wait call=failed(webhook_failed)",
			"failed(webhook_failed): start wait call=failed(webhook_failed)",
			"cancelled(contact_deleted): start wait=skipped(contact_deleted)")
	})
}

// A run that deletes its own contact can go on using the contact's data, which is erased when the run ends.
func TestForgottenAfterContactDelete(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for name, end := range map[string]func(id, runID string){
			"its last step":   func(string, string) { s.pass(25 * time.Hour); s.work() },
			"a failed step":   func(string, string) { s.answer = answering(404); s.pass(25 * time.Hour); s.work() },
			"being cancelled": func(id, runID string) { s.Must(s.a.CancelRun(ctx, team, id, runID)) },
			"a stop":          func(id, _ string) { _, err := s.a.Stop(ctx, team, id); s.Must(err); s.work() },
		} {
			s.answer, s.called = answering(200), nil
			id := s.automation(trigger(name), step("gone", engine.ContactDelete, `{}`),
				step("day", engine.Delay, `{"duration": "1 day"}`),
				step("call", engine.Webhook, `{"url": "https://acme.example/hook", "payload": {"p": {"var": "event.phone"}}}`))
			contact := s.contact(ann)
			s.happens(name, contact, `{"phone": "+49 30 1234"}`)
			s.work()
			s.mustRun(id, "running: start gone day=waiting")
			end(id, s.runs(id)[0].ID)
			if len(s.called) > 0 && !strings.Contains(s.called[0], "+49 30 1234") {
				t.Errorf("%s: called with %s", name, s.called)
			}
			if got := s.kept(contact); len(got) > 0 {
				t.Errorf("%s: kept are %q", name, got)
			}
		}
	})
}

func answering(status int) func() (int, error) { return func() (int, error) { return status, nil } }

// If a deleted contact has too many runs for one transaction, a job erases the data in these runs, except in the run
// that deleted the contact.
func TestManyForgotten(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		contact := s.contact(ann)
		for range 3 {
			s.automation(trigger("old"), step("split", engine.Split,
				`{"branches": [{"name": "a", "percent": 50}, {"name": "b", "percent": 50}]}`))
		}
		for range 60 {
			s.happens("old", contact, `{"phone": "+49 30 1234"}`)
		}
		s.work()
		for range 6 {
			s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
		}
		for range 18 {
			s.happens("go", contact, `{"phone": "+49 30 1234"}`)
		}
		s.work()
		id := s.automation(trigger("leave"), step("gone", engine.ContactDelete, `{}`),
			step("day", engine.Delay, `{"duration": "1 day"}`))
		s.happens("leave", contact, `{"phone": "+49 30 1234"}`)
		s.work()
		s.mustRun(id, "running: start gone day=waiting")
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE payload <> ''`); n != 1 {
			t.Errorf("%d runs have a payload", n)
		}
		if n := s.Count(`SELECT COUNT(*) FROM automation_run_steps p JOIN automation_runs r ON r.id = p.run_id
			WHERE r.payload = '' AND p.output <> ''`); n > 0 {
			t.Errorf("%d steps have an output", n)
		}
		s.pass(25 * time.Hour)
		s.work()
		s.mustRun(id, "completed: start gone day")
		if got := s.kept(contact); len(got) > 0 {
			t.Errorf("kept are %d texts, such as %s", len(got), got[0])
		}
	})
}
