package automations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// everywhere creates one run in each possible state: due, in a delay, waiting for an event, and at a webhook step.
func (s *fixture) everywhere() (automationID string, contactIDs []string) {
	s.T.Helper()
	is := func(key, value string) string {
		return step(key, engine.Condition, `{"type": "rule", "field": "event.to", "operator": "eq", "value": "`+value+`"}`)
	}
	id := s.graph(automations.NewAutomation{}, links("start first", "first day condition_met",
		"first second condition_not_met", "second wait condition_met", "second third condition_not_met",
		"third call condition_met", "third mail condition_not_met", "day mail", "wait mail event_received", "call mail"),
		trigger("go"), is("first", "delay"), is("second", "wait"), is("third", "call"),
		step("day", engine.Delay, `{"duration": "1 day"}`), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`),
		step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`), sends("mail"))
	s.answer = func() (int, error) { return 503, nil }
	for _, to := range []string{"delay", "wait", "call", ""} {
		c := s.contact(fmt.Sprintf("at%s@reader.example", to))
		contactIDs = append(contactIDs, c)
		s.happens("go", c, `{"to": "`+to+`"}`)
		if to != "" {
			s.work()
		}
	}
	s.mustRun(id, "running: start first day=waiting", "running: start first second wait=waiting",
		"running: start first second third call=running", "running: start")
	return id, contactIDs
}

func ended(status string) []string {
	return []string{status + ": start first day=skipped", status + ": start first second wait=skipped",
		status + ": start first second third call=skipped", status + ": start"}
}

// withReason appends a reason to skipped steps in the format of runLines.
func withReason(all []string, reason string) []string {
	all = slices.Clone(all)
	for i := range all {
		all[i] = strings.ReplaceAll(all[i], "=skipped", "=skipped("+reason+")")
	}
	return all
}

// Runs in every state are ended, and the reason is recorded, when an automation is stopped or deleted, a run is
// cancelled, or a contact is deleted.
func TestEnds(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for reason, end := range map[automations.Reason]func(id string, contactIDs []string){
			automations.Stopped: func(id string, _ []string) {
				_, err := s.a.Stop(ctx, team, id)
				s.Must(err)
			},
			automations.ContactDeleted: func(_ string, contactIDs []string) {
				for _, c := range contactIDs {
					_, err := s.Contacts.Delete(ctx, team, c)
					s.Must(err)
				}
			},
			automations.RunCancelled: func(id string, _ []string) {
				for _, r := range s.runs(id) {
					s.Must(s.a.CancelRun(ctx, team, id, r.ID))
				}
			},
		} {
			id, contactIDs := s.everywhere()
			end(id, contactIDs)
			s.work()
			s.mustRun(id, withReason(ended(fmt.Sprintf("cancelled(%s)", reason)), string(reason))...)
			s.pass(40 * 24 * time.Hour)
			s.work()
			for _, c := range contactIDs {
				s.happens("paid", c, "")
			}
			s.work()
			s.mustRun(id, withReason(ended(fmt.Sprintf("cancelled(%s)", reason)), string(reason))...)
			s.Must(s.forget())
			_, err := s.a.Stop(ctx, team, id)
			s.Must(err)
			s.work()
		}
		if n := s.Count(`SELECT COUNT(*) FROM emails`); n > 0 {
			t.Errorf("%d emails were entered", n)
		}
	})
}

// Deleting an automation ends its runs and hides them from lists.
func TestDeletedAutomation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id, _ := s.everywhere()
		s.Must(s.a.Delete(t.Context(), s.Acme.TeamID, id))
		s.work()
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'cancelled'
			AND reason = 'automation_deleted'`); n != 4 {
			t.Errorf("%d runs were ended", n)
		}
		s.consistent()
	})
}

// A run of a stopped automation carries out no step, even before the endKind job has ended it. A run that begins after
// the automation has been enabled again is not affected.
func TestStopBeforeItsJob(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.graph(automations.NewAutomation{}, links("start wait", "wait mail event_received", "wait mail timeout"),
			trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`), sends("mail"))
		c := s.contact(ann)
		s.happens("go", c, "")
		s.work()
		_, err := s.a.Stop(ctx, team, id)
		s.Must(err)
		s.happens("go", c, "")
		_, err = s.a.Update(ctx, team, id, automations.Change{Status: new(automations.Enabled)})
		s.Must(err)
		s.happens("go", c, "")
		stop := s.due()
		s.happens("paid", c, "")
		s.pass(31 * 24 * time.Hour)
		for _, j := range s.due() {
			if j.ID != stop[0].ID {
				s.Must(s.handle(j))
			}
		}
		want := []string{"cancelled(automation_stopped): start wait=skipped(automation_stopped)",
			"completed: start wait mail"}
		s.work()
		s.mustRun(id, want...)
		if got := s.mailed(ann); !slices.Equal(got, []string{"Hello"}) {
			t.Errorf("the emails are %q", got)
		}
	})
}

// A run from an older epoch ends even if the endKind job misses the run because it was committed after the stop.
func TestStopOverlooksARun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "30 days"}`), sends("mail"))
		s.happens("go", ann, "")
		begun := s.due()
		s.happens("go", ann, "")
		_, err := s.a.Stop(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
		hidden := s.runs(id)[0].ID
		show := func(from, to string) {
			s.Update(func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE automation_runs SET automation_id = $3 WHERE id = $1 AND automation_id = $2`,
					db.ID(hidden), db.ID(from), db.ID(to))
				return nil
			})
		}
		show(id, dbtest.ID("elsewhere"))
		for _, j := range s.due() {
			if j.ID != begun[0].ID {
				s.Must(s.handle(j))
			}
		}
		show(dbtest.ID("elsewhere"), id)
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'running'`); n != 1 {
			t.Errorf("%d runs are left by the job", n)
		}
		s.work()
		s.mustRun(id, "cancelled(automation_stopped): start", "cancelled(automation_stopped): start")
	})
}

// CancelRun cancels a run once, and other runs of the automation continue.
func TestCancelRun(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
		s.happens("go", ann, "")
		s.happens("go", ann, "")
		s.work()
		run := s.runs(id)[0].ID
		for what, err := range map[string]error{"another automation": s.a.CancelRun(ctx, team, run, run),
			"another team": s.a.CancelRun(ctx, s.Other.TeamID, id, run)} {
			if fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s: %v", what, err)
			}
		}
		s.Must(s.a.CancelRun(ctx, team, id, run))
		s.mustRun(id, "cancelled(run_cancelled): start day=skipped(run_cancelled)", "running: start day=waiting")
		if err := s.a.CancelRun(ctx, team, id, run); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a second time: %v", err)
		}
	})
}

// If a contact was deleted without an event, for example by an erasure of personal data, the contact's run ends when it
// is due.
func TestContactGone(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`), sends("mail"))
		s.happens("go", ann, "")
		s.work()
		s.Update(func(tx *db.Tx) error {
			tx.Queue(t.Context(), `DELETE FROM contacts`)
			return nil
		})
		s.pass(25 * time.Hour)
		s.work()
		s.mustRun(id, "cancelled(contact_deleted): start day=skipped(contact_deleted)")
	})
}

// If a contact or an automation has very many runs, they are ended in several transactions.
func TestManyEnd(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for range 6 {
			s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
		}
		fill := func() string {
			c := s.contact(ann)
			for range 20 {
				s.happens("go", c, "")
			}
			return c
		}
		left := func(want int) {
			t.Helper()
			if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'running'`); n != want {
				t.Errorf("%d runs are left and not %d", n, want)
			}
		}
		c := fill()
		_, err := s.Contacts.Delete(ctx, team, c)
		s.Must(err)
		left(20)
		s.work()
		left(0)
		if n := s.Count(`SELECT COUNT(*) FROM automation_contacts`); n != 0 {
			t.Errorf("automations remember the contact %d times", n)
		}
		solo := s.automation(trigger("solo"), step("day", engine.Delay, `{"duration": "1 day"}`))
		for i := range 140 {
			s.happens("solo", s.contact(fmt.Sprintf("c%d@reader.example", i%10)), "")
		}
		s.happens("go", s.contact(ann), "")
		_, err = s.a.Stop(ctx, team, solo)
		s.Must(err)
		s.work()
		left(6)
		s.consistent()
	})
}

// After an automation has been stopped and enabled again, runs from before the stop no longer count as active, even if
// no job has ended them yet.
func TestStoppedRunsDoNotCount(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		const day = `{"duration": "1 day"}`
		once := s.graph(automations.NewAutomation{Reentry: automations.OnceAtATime}, links("start day"), trigger("go"),
			step("day", engine.Delay, day))
		many := s.automation(trigger("go"), step("day", engine.Delay, day))
		c := s.contact(ann)
		for range 20 {
			s.happens("go", c, "")
		}
		for _, id := range []string{once, many} {
			_, err := s.a.Stop(ctx, team, id)
			s.Must(err)
			_, err = s.a.Update(ctx, team, id, automations.Change{Status: new(automations.Enabled)})
			s.Must(err)
		}
		count := func(what string, wantOnce, wantMany int) {
			t.Helper()
			for id, want := range map[string]int{once: wantOnce, many: wantMany} {
				if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE automation_id = $1 AND epoch = 2
					AND status = 'running'`, db.ID(id)); n != want {
					t.Errorf("%s: %d runs and not %d", what, n, want)
				}
			}
			s.consistent()
		}
		for range 2 {
			s.happens("go", c, "")
		}
		count("before a job has ended the others", 1, 2)
		s.work()
		count("after it", 1, 2)
		for range 30 {
			s.happens("go", c, "")
		}
		count("after more events", 1, 20)
		s.work()
		s.pass(25 * time.Hour)
		s.work()
		s.happens("go", c, "")
		count("after they have ended", 1, 1)
	})
}
