package automations_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
)

// waitFor returns the JSON of a step that waits for an event.
func waitFor(key, event string) string {
	return step(key, engine.WaitForEvent, fmt.Sprintf(`{"event_name": %q, "timeout": "1 hour"}`, event))
}

const opened, clicked = "postrider:email.opened", "postrider:email.clicked"

// acts returns an event about a contact's email: an open, or a click on a link.
func (s *fixture) acts(contactID, emailID, link string) events.Event {
	e := events.Event{TeamID: s.Acme.TeamID, Type: events.EmailOpened, EmailID: emailID, ContactID: contactID,
		Recipient: ann, Data: &events.Open{}}
	if link != "" {
		e.Type, e.Data = events.EmailClicked, &events.Click{Link: link}
	}
	return e
}

// System events that follow each other at once all reach a run with several waits in succession, even if no node has
// cached the run's graph. It does not matter whether one transaction or several ones record the events.
func TestSystemEventsInSuccession(t *testing.T) {
	t.Parallel()
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprint("together ", together), func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *fixture) {
				both := s.graph(automations.NewAutomation{}, links("start a", "a b event_received"), trigger("go"),
					waitFor("a", opened), waitFor("b", clicked))
				twice := s.graph(automations.NewAutomation{}, links("start a", "a b event_received"), trigger("go"),
					waitFor("a", opened), waitFor("b", opened))
				wanted := s.graph(automations.NewAutomation{}, links("start a", "a b event_received", "b is event_received"),
					trigger("go"), waitFor("a", opened), step("b", engine.WaitForEvent, `{"event_name": "`+clicked+`",
					"filter_rule": {"type": "rule", "field": "event.link", "operator": "contains", "value": "good"}}`),
					step("is", engine.Condition, `{"type": "rule", "field": "wait_events.b.link",
					"operator": "contains", "value": "good"}`))
				c, email := s.contact(ann), s.Send(testnode.Hello(ann))
				s.happens("go", c, "")
				open, bad, good := s.acts(c, email, ""), s.acts(c, email, "https://acme.example/bad"),
					s.acts(c, email, "https://acme.example/good")
				if together {
					s.Happen(open, bad, good, open)
				} else {
					s.Happen(open)
					s.Happen(bad)
					s.mustRun(both, "running: start a=waiting")
					s.Happen(good)
					s.Happen(open)
				}
				s.work()
				s.mustRun(both, "completed: start a b")
				s.mustRun(twice, "completed: start a b")
				s.mustRun(wanted, "completed: start a b is")
				if out := s.runs(wanted)[0].Steps[3].Output["result"]; out != true {
					t.Errorf("the condition about the second event is %v", out)
				}
			})
		})
	}
}

// A node that has cached a run's graph does not deliver an event before the pending events that arrived at another
// node.
func TestPendingEventsOnSeveralNodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.graph(automations.NewAutomation{}, links("start a", "a b event_received", "b c event_received"),
			trigger("go"), waitFor("a", "one"), waitFor("b", "two"), waitFor("c", "three"))
		c := s.contact(ann)
		s.happens("go", c, "")
		s.happens("one", c, "")
		s.Update(func(tx *db.Tx) error { // as if a node of the previous release had created the automation
			tx.Queue(t.Context(), `UPDATE automation_versions SET wait_events = ''`)
			return nil
		})
		cold := s.a
		s.a = s.service()
		s.Must(s.a.LoadWaiting(t.Context(), s.Acme.TeamID, "one", c))
		s.happens("two", c, "")
		s.happens("three", c, "")
		s.mustRun(id, "running: start a=waiting")
		s.a = cold
		s.work()
		s.mustRun(id, "completed: start a b c")
	})
}

// A pending event that happened before the end of a wait is received, even if the run's job is late. A run that ends
// loses its pending events.
func TestPendingEventsAndTheEndOfAWait(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.graph(automations.NewAutomation{}, links("start a", "a b event_received", "a c timeout"), trigger("go"),
			waitFor("a", "paid"), waitFor("b", "sent"), waitFor("c", "sent"))
		c := s.contact(ann)
		s.happens("go", c, "")
		s.happens("paid", c, `{"name": "Ann"}`)
		s.Update(func(tx *db.Tx) error { // the event happened long ago, and the wait has ended since
			tx.Queue(t.Context(), `UPDATE automation_runs SET waits_until = $1, pending = REPLACE(pending, $2, '2020')`,
				s.DB.Now().Add(-time.Minute).UnixMicro(), s.DB.Now().Format("2006"))
			return nil
		})
		s.work()
		s.mustRun(id, "running: start a b=waiting")
		s.happens("sent", c, "")
		s.work()
		for _, end := range []func(runID string){
			func(runID string) { s.Must(s.a.CancelRun(t.Context(), s.Acme.TeamID, id, runID)) },
			func(string) { _, err := s.Contacts.Delete(t.Context(), s.Acme.TeamID, ann); s.Must(err) },
		} {
			s.a = s.service()
			c := s.contact(ann)
			s.happens("go", c, "")
			s.happens("paid", c, `{"name": "Ann"}`)
			if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE pending LIKE '%Ann%'`); n != 1 {
				t.Fatalf("%d runs have pending events", n)
			}
			all := s.runs(id)
			end(all[len(all)-1].ID)
			s.work()
			if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE pending <> '' OR status = 'running'`); n != 0 {
				t.Errorf("%d runs have not ended or have pending events", n)
			}
			s.consistent()
		}
	})
}

// An erasure replaces an address in the pending events of other contacts' runs. The pending events of a run are
// bounded.
func TestPendingEventsAreErasedAndBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.graph(automations.NewAutomation{}, links("start a", "a b event_received"), trigger("go"),
			waitFor("a", "paid"), waitFor("b", "sent"))
		c := s.contact(ann)
		s.happens("go", c, "")
		s.happens("paid", c, `{"by": "Bob@Reader.example"}`)
		a, err := erasure.Parse("bob@reader.example")
		s.Must(err)
		found, err := s.a.EraseAddress(t.Context(), a, erasure.Scope{Teams: []string{s.Acme.TeamID}})
		s.Must(err)
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE LOWER(pending) LIKE '%bob@%'`); n != 0 ||
			len(found) == 0 {
			t.Errorf("%d runs have the address; erased are %+v", n, found)
		}
		s.happens("other", c, "") // no step waits for it
		large := `{"text": "` + strings.Repeat("x", 60<<10) + `"}`
		for range 6 {
			s.happens("paid", c, large)
		}
		s.happens("sent", c, "")
		if n := s.Count(`SELECT MAX(LENGTH(pending)) FROM automation_runs`); n > 256<<10 || n < 200<<10 {
			t.Errorf("the pending events have %d bytes", n)
		}
		s.work()
		s.mustRun(id, "completed: start a b")
	})
}
