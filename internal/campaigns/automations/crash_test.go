package automations_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
)

// trip creates an automation that sends two emails, changes the contact, calls a webhook, and waits for an event.
func (s *fixture) trip() (automationID string) {
	s.T.Helper()
	s.template("bye", "Bye")
	return s.graph(automations.NewAutomation{}, links("start first", "first set", "set is", "is call condition_met",
		"call wait", "wait bye event_received"), trigger("go"), sends("first"),
		step("set", engine.ContactUpdate, `{"first_name": "Ann"}`),
		step("is", engine.Condition, `{"type": "rule", "field": "contact.first_name", "operator": "eq", "value": "Ann"}`),
		step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`),
		step("wait", engine.WaitForEvent, `{"event_name": "paid"}`),
		step("bye", engine.SendEmail, `{"template": {"id": "bye"}}`))
}

// begun deletes all runs, emails, contacts and jobs, and then recreates the contact.
func (s *fixture) begun() (contactID string) {
	s.T.Helper()
	s.Must(s.forget())
	s.Update(func(tx *db.Tx) error {
		for _, table := range []string{"automation_waits", "contacts", "jobs", "email_recipients", "emails"} {
			tx.Queue(s.T.Context(), `DELETE FROM `+table)
		}
		return nil
	})
	return s.contact(ann)
}

// travel sends the events that the automation created by trip still needs, and runs due jobs, until the first error.
func (s *fixture) travel(contactID string) error {
	var begun, paid bool
	err := s.DB.QueryRow(s.T.Context(), `SELECT EXISTS (SELECT 1 FROM automation_runs),
		EXISTS (SELECT 1 FROM automation_run_steps WHERE step = 'wait' AND status = 'completed')`).Scan(&begun, &paid)
	if err != nil {
		return err
	}
	if !begun {
		if err := s.tryEvent("go", contactID, `{"sum": 5}`); err != nil {
			return err
		}
	}
	if err := s.tryWork(); err != nil {
		return err
	}
	if !paid {
		if err := s.tryEvent("paid", contactID, ""); err != nil {
			return err
		}
	}
	return s.tryWork()
}

func (s *fixture) tryWork() error {
	for {
		all, err := s.tryDue()
		if err != nil || len(all) == 0 {
			return err
		}
		for _, j := range all {
			if err := s.handle(j); err != nil {
				return err
			}
		}
	}
}

// arrived completes the run of the automation created by trip, and checks that each step was carried out once.
func (s *fixture) arrived(automationID, contactID string) {
	s.T.Helper()
	s.giveBack()
	s.Must(s.travel(contactID))
	s.mustRun(automationID, "completed: start first set is call wait bye")
	if got := s.mailed(ann); !slices.Equal(got, []string{"Hello", "Bye"}) {
		s.T.Errorf("the emails are %q", got)
	}
}

// If any single SQL statement fails once, no step is skipped or carried out twice.
func TestBrokenStatements(t *testing.T) {
	t.Parallel()
	sqliteTraced(t, func(t *testing.T, s *fixture) {
		id, contact := s.trip(), ""
		failed := s.trace.EachBroken(t, func() { contact = s.begun() }, func() error { return s.travel(contact) },
			func(error) { s.arrived(id, contact) })
		if failed < 30 {
			t.Errorf("%d statements were broken", failed)
		}
	})
}

// If the database connection is lost at any point, even during a commit, no step is skipped or carried out twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, 0)
	s := newFixture(t, testnode.New(t, d, testnode.Options{}))
	id, contact := s.trip(), ""
	failed := dbtest.SomeTorn(t, proxy, 5, func() { contact = s.begun() }, func() error { return s.travel(contact) },
		func(int, error) { s.arrived(id, contact) })
	if failed < 5/dbtest.TornStep(5) {
		t.Errorf("%d trips failed: the test reaches too little", failed)
	}
}

// An event that arrives while a worker is processing the run's job is not lost, and the step is carried out once.
func TestEventWhileInHand(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		id := s.graph(automations.NewAutomation{}, links("start wait", "wait mail event_received"), trigger("go"),
			step("wait", engine.WaitForEvent, `{"event_name": "paid"}`), sends("mail"))
		contact := s.contact(ann)
		s.happens("go", contact, "")
		s.work()
		run := s.runs(id)[0].ID
		s.Update(func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE jobs SET run_at = 0 WHERE dedupe = $1`, run)
			return nil
		})
		s.trace.Before("FROM contacts WHERE id", func() { s.happens("paid", contact, "") })
		s.work()
		s.mustRun(id, "completed: start wait mail")
		if got := s.mailed(ann); len(got) != 1 {
			t.Errorf("the emails are %q", got)
		}
	})
}

// If a run is cancelled, or its contact is deleted, after the worker has read the run, the worker carries out no step.
func TestStopWhileInHand(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for reason, end := range map[automations.Reason]func(id, runID, contactID string){
			automations.Stopped: func(id, _, _ string) {
				_, err := s.a.Stop(ctx, team, id)
				s.Must(err)
			},
			automations.RunCancelled: func(id, runID, _ string) { s.Must(s.a.CancelRun(ctx, team, id, runID)) },
			automations.ContactDeleted: func(_, _, contactID string) {
				_, err := s.Contacts.Delete(ctx, team, contactID)
				s.Must(err)
			},
		} {
			id := s.automation(trigger("go "+string(reason)), sends("mail"))
			contact := s.contact(ann)
			s.happens("go "+string(reason), contact, "")
			run := s.runs(id)[0].ID
			s.between(func() { end(id, run, contact) })
			s.work()
			s.mustRun(id, "cancelled("+string(reason)+"): start")
		}
		if got := s.mailed(ann); len(got) > 0 {
			t.Errorf("the emails are %q", got)
		}
	})
}

// The list of cancelled runs includes a run that a job cancels while the list is being read.
func TestListWhileRunsAreCancelled(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.graph(automations.NewAutomation{}, links("start wait"), trigger("go"),
			step("wait", engine.WaitForEvent, `{"event_name": "paid"}`))
		s.happens("go", s.contact(ann), "")
		s.work()
		_, err := s.a.Stop(ctx, team, id)
		s.Must(err)
		s.trace.Before("r.epoch < $4", s.work)
		all, _, _, err := s.a.Runs(ctx, team, id, []automations.RunStatus{automations.Cancelled}, page.Page{})
		if err != nil || len(all) != 1 || all[0].Status != automations.Cancelled {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// An event is accepted even if an automation whose runs are waiting for the event is stopped concurrently.
func TestStopWhileEventIsTakenIn(t *testing.T) {
	t.Parallel()
	d, trace := dbtest.PostgresTraced(t)
	s := newFixture(t, testnode.New(t, d, testnode.Options{}))
	id := s.graph(automations.NewAutomation{}, links("start wait", "wait mail event_received"), trigger("go"),
		step("wait", engine.WaitForEvent, `{"event_name": "paid"}`), sends("mail"))
	contact := s.contact(ann)
	s.happens("go", contact, "")
	s.work()
	trace.Before("UPDATE automation_run_steps", func() {
		_, err := s.a.Stop(t.Context(), s.Acme.TeamID, id)
		s.Must(err)
	})
	s.happens("paid", contact, "")
	s.work()
	s.mustRun(id, "cancelled(automation_stopped): start wait")
	if got := s.mailed(ann); len(got) > 0 {
		t.Errorf("the emails are %q", got)
	}
}

// After concurrent events, steps and deletions that involve the same contacts, the database rows of the runs are
// consistent.
func TestAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		s.automation(trigger("go"), sends("mail"), step("set", engine.ContactUpdate, `{"first_name": {"var": "event.n"}}`))
		s.graph(automations.NewAutomation{}, links("start wait", "wait mail event_received", "wait mail timeout"),
			trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`), sends("mail"))
		s.graph(automations.NewAutomation{Reentry: automations.OnceAtATime}, links("start wait"),
			trigger("postrider:contact.updated"),
			step("wait", engine.WaitForEvent, `{"event_name": "postrider:contact.updated"}`))
		addresses := []string{"a@reader.example", "b@reader.example", "c@reader.example"}
		done := make(chan struct{})
		for worker := range 4 {
			go func() {
				defer func() { done <- struct{}{} }()
				for n := range 15 {
					address := addresses[(n+worker)%len(addresses)]
					c, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, address, contacts.Change{})
					if err == nil {
						err = s.tryEvent([]string{"go", "paid"}[n%2], c.ID, `{"n": "x`+string(rune('a'+n))+`"}`)
					}
					if err == nil && n%7 == 6 {
						_, err = s.Contacts.Delete(t.Context(), s.Acme.TeamID, address)
					}
					if err != nil && fault.KindOf(err) != fault.NotFound {
						t.Errorf("worker %d: %v", worker, err)
					}
				}
			}()
		}
		stop := s.Run(s.a.Kinds()...)
		for range 4 {
			<-done
		}
		testnode.Until(t, "nothing is due", func() bool {
			return s.Count(`SELECT COUNT(*) FROM jobs WHERE kind LIKE 'automations.%'
				AND (holder IS NOT NULL OR run_at <= $1)`,
				s.DB.Now().UnixMicro()) == 0
		})
		stop()
		s.pass(40 * 24 * time.Hour)
		s.work()
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'running'`); n > 0 {
			t.Errorf("%d runs go on", n)
		}
		s.consistent()
		if n := s.Count(`SELECT COUNT(*) FROM automation_run_steps WHERE step = 'mail' AND status = 'completed'`); n !=
			s.Count(`SELECT COUNT(*) FROM emails`) {
			t.Errorf("%d steps have sent %d emails", n, s.Count(`SELECT COUNT(*) FROM emails`))
		}
	})
}

// Many concurrent events for a few contacts cause no deadlock, so no transaction is retried.
func TestEventsOfFewContacts(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		const workers, events = 8, 40
		s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
		s.automation(trigger("go"))
		ids := []string{s.contact(ann), s.contact("bob@reader.example"), s.contact("cat@reader.example")}
		s.trace.Take()
		var all sync.WaitGroup
		for worker := range workers {
			all.Go(func() {
				for n := range events {
					err := s.CustomEvents.Send(t.Context(), s.Acme.TeamID, customevents.NewEvent{Event: "go",
						ContactID: ids[(n*2+worker)%len(ids)]})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		counted := 0
		for _, st := range s.trace.Take() {
			if strings.Contains(st.SQL, "INSERT INTO automation_contacts") {
				counted++
			}
		}
		if counted != 2*workers*events {
			t.Errorf("%d runs were counted of %d", counted, 2*workers*events)
		}
	})
}
