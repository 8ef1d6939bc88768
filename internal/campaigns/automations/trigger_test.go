package automations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// An automation's reentry rule decides which events begin a run. An event that the rule does not admit creates no rows.
func TestReentry(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		day := step("day", engine.Delay, `{"duration": "1 day"}`)
		for rule, want := range map[automations.Reentry]int{automations.Always: 6, automations.OnceAtATime: 2,
			automations.Once: 1} {
			id := s.graph(automations.NewAutomation{Reentry: rule}, links("start day"), trigger("go "+string(rule)), day)
			for range 2 {
				for range 3 {
					s.happens("go "+string(rule), ann, "")
				}
				s.work()
				s.pass(25 * time.Hour)
				s.work()
			}
			if got := len(s.runs(id)); got != want {
				t.Errorf("%s: %d runs", rule, got)
			}
			s.happens("go "+string(rule), "bob@reader.example", "") // Bob has separate counters
			if got := len(s.runs(id)); got != want+1 {
				t.Errorf("%s: %d runs of two contacts", rule, got)
			}
		}
		s.consistent()
	})
}

// Many events for one contact begin no more than the allowed number of active runs and of runs per hour. One failed run
// per hour states the reason.
func TestStorm(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		waits := s.automation(trigger("go"), step("day", engine.Delay, `{"duration": "1 day"}`))
		ends := s.automation(trigger("go"))
		contact := s.contact(ann)
		for range 130 {
			s.happens("go", contact, "")
		}
		once := s.graph(automations.NewAutomation{Reentry: automations.Once}, links("start day"), trigger("go"),
			step("day", engine.Delay, `{"duration": "1 day"}`))
		count := func(id string) string {
			return s.text(`SELECT COUNT(CASE WHEN status = 'failed' THEN 1 END) || ' of ' || COUNT(*) FROM automation_runs
				WHERE automation_id = $1`, db.ID(id))
		}
		if w, e := count(waits), count(ends); w != "1 of 21" || e != "1 of 101" {
			t.Errorf("failed are %s that wait and %s that end", w, e)
		}
		last := s.runs(waits)[20]
		if runLines(last) != "failed(too_many_runs):" || !strings.Contains(last.Message, "20 runs") ||
			!strings.Contains(last.Message, "100 within an hour") || last.EndedAt.IsZero() {
			t.Errorf("the run that was refused is %+v", last)
		}
		s.pass(2 * time.Hour)
		for range 130 {
			s.happens("go", contact, "")
		}
		if w, e, o := count(waits), count(ends), count(once); w != "2 of 22" || e != "2 of 202" || o != "0 of 1" {
			t.Errorf("an hour later failed are %s that wait, %s that end and %s that begin once", w, e, o)
		}
		s.consistent()
	})
}

// An event for an unknown address creates a contact only if the event triggers an automation.
func TestUnknownAddress(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"))
		s.happens("other", ann, "")
		if n := s.Count(`SELECT COUNT(*) FROM contacts`); n != 0 {
			t.Errorf("%d contacts", n)
		}
		s.happens("go", "Ann@Reader.example", "")
		at, err := s.Contacts.Get(t.Context(), s.Acme.TeamID, ann)
		s.Must(err)
		if r := s.runs(id); len(r) != 1 || r[0].ContactID != at.ID {
			t.Errorf("the runs are %+v", r)
		}
	})
}

// An event is delivered to all runs of its contact that are waiting for this event, and to no other runs.
func TestWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		wait := func(filter string) string {
			return step("wait", engine.WaitForEvent, `{"event_name": "paid"`+filter+`}`)
		}
		each := s.graph(automations.NewAutomation{}, links("start wait", "wait paid event_received"), trigger("go"), wait(""),
			step("paid", engine.Condition, `{"type": "rule", "field": "wait_events.wait.sum", "operator": "gt", "value": 10}`))
		much := s.graph(automations.NewAutomation{}, links("start wait"), trigger("go"), wait(`, "filter_rule":
			{"type": "rule", "field": "event.sum", "operator": "gt", "value": 10}`))
		a, b := s.contact(ann), s.contact("bob@reader.example")
		s.happens("go", a, "")
		s.happens("go", b, "")
		s.work()
		s.happens("paid", a, `{"sum": 5}`)
		s.happens("other", b, `{"sum": 50}`)
		s.work()
		s.mustRun(each, "completed: start wait paid", "running: start wait=waiting")
		s.mustRun(much, "running: start wait=waiting", "running: start wait=waiting")
		s.happens("paid", a, `{"sum": 50}`)
		s.work()
		s.mustRun(much, "completed: start wait", "running: start wait=waiting")
		if out := s.runs(each)[0].Steps[2].Output["result"]; out != false {
			t.Errorf("the condition is %v of 5", out)
		}
		s.pass(31 * 24 * time.Hour)
		s.work()
		s.mustRun(each, "completed: start wait paid", "completed: start wait")
		s.mustRun(much, "completed: start wait", "completed: start wait")
	})
}

// An event is delivered to all waiting runs, even if there are too many for one transaction.
func TestManyWaits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		const automations = 7
		contact := s.contact(ann)
		for range automations {
			s.automation(trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`))
		}
		for range 20 {
			s.happens("go", contact, "")
		}
		s.atHand()
		s.happens("paid", contact, "")
		left := s.Count(`SELECT COUNT(*) FROM automation_waits`)
		s.work()
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'completed'`); left != automations*20-100 ||
			n != automations*20 {
			t.Errorf("%d runs wait when the event is stored, and %d have ended", left, n)
		}
		s.consistent()
	})
}

// atHand fills the cache with the graphs of all automations that have the trigger go and wait for the event paid.
func (s *fixture) atHand() {
	s.T.Helper()
	first := s.contact("first@reader.example")
	s.happens("go", first, "")
	s.happens("paid", first, "")
	s.work()
	s.Update(func(tx *db.Tx) error {
		for _, text := range []string{
			`DELETE FROM automation_run_steps WHERE run_id IN (SELECT id FROM automation_runs WHERE status = 'completed')`,
			`DELETE FROM automation_runs WHERE status = 'completed'`} {
			tx.Queue(s.T.Context(), text)
		}
		return nil
	})
}

// If a run's graph is not in the cache, the run's job delivers the event to the run, unless the run is no longer
// waiting. A job with an event, as a node of the previous release inserts it, is delivered only to a run that has not
// changed.
func TestWaitsOfGraphsThatAreNotAtHand(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		contact := s.contact(ann)
		wait := func(key string) string { return step(key, engine.WaitForEvent, `{"event_name": "paid"}`) }
		var ids []string
		for range 3 {
			ids = append(ids, s.graph(automations.NewAutomation{}, links("start a", "a b event_received"), trigger("go"),
				wait("a"), wait("b")))
		}
		s.happens("go", contact, "")
		s.happens("paid", contact, "")
		s.mustRun(ids[0], "running: start a=waiting")
		s.Must(s.a.CancelRun(t.Context(), s.Acme.TeamID, ids[2], s.runs(ids[2])[0].ID))
		payload := fmt.Sprintf(`{"name": "paid", "contact": %q, "payload": "", "at": %q, "runs": [{"id": %q, "revision": 2}]}`,
			contact, s.DB.Now().Format(time.RFC3339Nano), s.runs(ids[0])[0].ID)
		s.work()
		for _, id := range ids[:2] {
			s.mustRun(id, "running: start a b=waiting")
		}
		s.mustRun(ids[2], "cancelled(run_cancelled): start a=skipped(run_cancelled)")
		s.Update(func(tx *db.Tx) error {
			s.Queue.Insert(t.Context(), tx, jobs.New{Kind: "automations.wake", Lane: s.Acme.TeamID, TeamID: s.Acme.TeamID,
				Payload: payload})
			return nil
		})
		s.work()
		s.mustRun(ids[0], "running: start a b=waiting")
		s.happens("paid", contact, "") // the job loads the graphs into the cache
		s.mustRun(ids[1], "completed: start a b")
	})
}

// If a run's first step waits for an event with the same name as the one that began the run, the run receives only the
// next such event.
func TestEventRightAfterTheFirst(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		wait := step("wait", engine.WaitForEvent, `{"event_name": "paid", "timeout": "1 hour"}`)
		id := s.automation(trigger("go"), wait)
		same := s.automation(trigger("paid"), wait)
		s.happens("go", ann, "")
		s.mustRun(id, "running: start wait=waiting")
		s.happens("paid", s.contact(ann), "")
		s.work()
		s.mustRun(id, "completed: start wait")
		s.mustRun(same, "running: start wait=waiting")
		s.pass(2 * time.Hour)
		s.work()
		if out := s.runs(same)[0].Steps[1].Output["timed_out"]; out != true {
			t.Errorf("the wait for an event that begins the run ends with %v", out)
		}
	})
}

// A run stores those members of received events that its steps refer to, and fails if their size exceeds the limit.
func TestReceivedIsBounded(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		const waits = 6
		begins := func(event, refers string) string {
			steps, all, before := []string{trigger(event)}, []string{}, "start"
			for i := range waits {
				key, by := fmt.Sprint("w", i), " event_received"
				if i == 0 {
					by = ""
				}
				steps = append(steps, step(key, engine.WaitForEvent, `{"event_name": "paid"}`))
				all, before = append(all, before+" "+key+by), key
			}
			steps = append(steps, step("set", engine.ContactUpdate, `{"first_name": {"var": "wait_events.`+refers+`"}}`))
			return s.graph(automations.NewAutomation{}, links(append(all, before+" set event_received")...), steps...)
		}
		little, much := begins("little", "w1.plan"), begins("much", "paid.note")
		c := s.contact(ann)
		s.happens("little", c, "")
		s.happens("much", c, "")
		for range waits {
			s.happens("paid", c, `{"plan":"pro","note":"`+strings.Repeat("x", 31<<10)+`"}`)
			s.work()
		}
		s.mustRun(little, "completed: start w0 w1 w2 w3 w4 w5 set")
		s.mustRun(much, "failed(received_too_large): start w0 w1 w2 w3 w4=failed(received_too_large)")
		size := func(id string) int {
			return s.Count(`SELECT LENGTH(received) FROM automation_runs WHERE automation_id = $1`, db.ID(id))
		}
		if l, m := size(little), size(much); l > 200 || m > 128<<10 {
			t.Errorf("%d and %d bytes are kept", l, m)
		}
		if got := s.text(`SELECT first_name FROM contacts WHERE id = $1`, db.ID(c)); got != "pro" {
			t.Errorf("the contact is called %q", got)
		}
	})
}

// Ending a run does not read the event payloads, and unchanged payloads are not written.
func TestLargeColumnsAreLeftAlone(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.graph(automations.NewAutomation{}, links("start wait", "wait set event_received", "set day"), trigger("go"),
			step("wait", engine.WaitForEvent, `{"event_name": "paid"}`),
			step("set", engine.ContactUpdate, `{"last_name": {"var": "wait_events.wait.name"}}`),
			step("day", engine.Delay, `{"duration": "1 day"}`))
		all := []string{s.contact(ann), s.contact("bob@reader.example"), s.contact("cat@reader.example")}
		for _, c := range all {
			s.happens("go", c, `{"a": "b"}`)
			s.happens("paid", c, `{"name": "Lee"}`)
		}
		s.work()
		s.pass(25 * time.Hour)
		s.trace.Take()
		check := func(what string) {
			t.Helper()
			for _, st := range s.trace.Take() {
				if strings.HasPrefix(st.SQL, "UPDATE automation_runs") && strings.Contains(st.SQL, "received") &&
					what != "deleting a contact" {
					t.Errorf("%s: %s", what, st.SQL)
				}
				if strings.Contains(st.SQL, "r.payload") && what != "a step" {
					t.Errorf("%s: %s", what, st.SQL)
				}
			}
		}
		s.Must(s.handle(s.due()[0]))
		check("a step")
		_, err := s.Contacts.Delete(ctx, team, all[1])
		s.Must(err)
		check("deleting a contact")
		_, err = s.a.Stop(ctx, team, id)
		s.Must(err)
		for _, j := range s.due() {
			if j.Kind == "automations.end" {
				s.Must(s.handle(j))
			}
		}
		check("stopping")
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE status <> 'running' AND contact_id <> $1
			AND received LIKE '%Lee%'`, db.ID(all[1])); n != 2 {
			t.Errorf("%d runs have what they received", n)
		}
	})
}

// The transaction that stores an event reads no graphs.
func TestEventsReadNoGraphs(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		s.automation(trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "paid"}`))
		s.automation(trigger("go"), sends("mail"))
		contact := s.contact(ann)
		s.trace.Before("SELECT steps, connections FROM", func() { t.Error("a graph is read") })
		s.happens("go", contact, "")
		s.happens("paid", contact, "")
	})
}

// System events about contacts and emails begin runs, whichever of the two prefixes the event name has.
func TestSystemEvents(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		topic := s.topic("News", contacts.OptOut)
		ids := map[string]string{}
		for i, name := range []string{"contact.created", "contact.updated", "contact.unsubscribed", "contact.resubscribed",
			"topic.opted_in", "topic.opted_out"} {
			prefix := []string{"postrider:", "resend:"}[i%2]
			ids[name] = s.automation(trigger(prefix + name))
		}
		change := func(c contacts.Change) {
			t.Helper()
			_, _, err := s.Contacts.Upsert(ctx, team, ann, c)
			s.Must(err)
		}
		began := func(what string, names ...string) {
			t.Helper()
			var got []string
			for name, id := range ids {
				for range s.runs(id) {
					got = append(got, name)
				}
			}
			slices.Sort(got)
			slices.Sort(names)
			if !slices.Equal(got, names) {
				t.Errorf("%s: %v and not %v", what, got, names)
			}
			s.Must(s.forget())
		}
		choose := func(to contacts.Subscription) contacts.Change {
			return contacts.Change{Topics: []contacts.Choice{{TopicID: topic, Subscription: to}}}
		}
		change(contacts.Change{FirstName: new("Ann")})
		began("a new contact", "contact.created")
		change(contacts.Change{FirstName: new("Ann")})
		began("no change")
		change(contacts.Change{FirstName: new("Anna"), Unsubscribed: new(true)})
		began("who left", "contact.updated", "contact.unsubscribed")
		change(contacts.Change{Unsubscribed: new(false)})
		began("who came back", "contact.updated", "contact.resubscribed")
		change(choose(contacts.OptIn))
		payload := s.text(`SELECT payload FROM automation_runs WHERE event = 'postrider:topic.opted_in'`)
		if !strings.Contains(payload, `"topic_id":"`+topic+`"`) || !strings.Contains(payload, `"first_name":"Anna"`) {
			t.Errorf("the payload is %s", payload)
		}
		began("who opted in", "contact.updated", "topic.opted_in")
		change(choose(contacts.OptIn))
		began("the same choice")
		change(choose(contacts.OptOut))
		began("who opted out", "contact.updated", "topic.opted_out")
	})
}

// forget deletes all runs.
func (s *fixture) forget() error {
	return s.DB.Update(s.T.Context(), func(tx *db.Tx) error {
		for _, table := range []string{"automation_run_steps", "automation_runs", "automation_contacts"} {
			tx.Queue(s.T.Context(), `DELETE FROM `+table)
		}
		return nil
	})
}

func (s *fixture) text(query string, args ...any) (text string) {
	s.T.Helper()
	s.Must(s.DB.QueryRow(s.T.Context(), query, args...).Scan(&text))
	return text
}

// Opens, clicks, bounces and complaints begin runs for the contact for which the email was enqueued, or for the contact
// with the recipient's address. Opens and clicks by bots begin no runs, and neither do events about emails to addresses
// that belong to no contact.
func TestEventsOfEmails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		all := map[events.Type]any{events.EmailOpened: &events.Open{}, events.EmailClicked: &events.Click{Link: "https://x"},
			events.EmailBounced:    &events.Bounce{Type: "Permanent", SubType: "General"},
			events.EmailComplained: &events.Complaint{}}
		ids := map[events.Type]string{}
		for kind := range all {
			ids[kind] = s.automation(trigger("postrider:" + string(kind)))
		}
		a, moved := s.contact(ann), s.contact("new@reader.example")
		email := s.Send(testnode.Hello(ann, "old@reader.example", "nobody@reader.example"))
		for kind, data := range all {
			e := events.Event{TeamID: s.Acme.TeamID, Type: kind, EmailID: email, DomainID: s.Sender.ID, Data: data}
			to := func(address, contact string) events.Event {
				one := e
				one.Recipient, one.ContactID = address, contact
				return one
			}
			s.Happen(to(ann, ""), to("old@reader.example", moved), to("nobody@reader.example", ""))
			got := s.runs(ids[kind])
			if len(got) != 2 || got[0].ContactID != a || got[1].ContactID != moved {
				t.Errorf("%s: %+v", kind, got)
			}
			payload := s.text(`SELECT MIN(payload) FROM automation_runs WHERE automation_id = $1`,
				db.ID(ids[kind]))
			if !strings.Contains(payload, email) || !strings.Contains(payload, `"subject":"Hi"`) {
				t.Errorf("%s: the payload is %s", kind, payload)
			}
		}
		machine := events.Event{TeamID: s.Acme.TeamID, Type: events.EmailOpened, EmailID: email, Recipient: ann,
			Data: &events.Open{Machine: events.Machine{Is: true}}}
		s.Happen(machine)
		if got := s.runs(ids[events.EmailOpened]); len(got) != 2 {
			t.Errorf("a machine has begun a run")
		}
	})
}

// If two automations trigger each other, the chain of their runs stops at the maximum depth, and the last run fails for
// this reason.
func TestDepth(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		sets := func(event string, to bool) string {
			return s.automation(trigger(event), step("set", engine.ContactUpdate, fmt.Sprintf(`{"unsubscribed": %v}`, to)))
		}
		back, leave := sets("postrider:contact.unsubscribed", false), sets("postrider:contact.resubscribed", true)
		s.contact(ann)
		_, _, err := s.Contacts.Upsert(t.Context(), s.Acme.TeamID, ann, contacts.Change{Unsubscribed: new(true)})
		s.Must(err)
		s.work()
		s.mustRun(back, "completed: start set", "completed: start set", "completed: start set")
		s.mustRun(leave, "completed: start set", "completed: start set", "failed(too_many_automations):")
		if r := s.runs(leave)[2]; !strings.Contains(r.Message, "trigger each other") || r.EndedAt.IsZero() {
			t.Errorf("the last run is %+v", r)
		}
	})
}

// If one transaction records events for very many contacts, it begins and wakes only a limited number of runs. Jobs
// begin and wake the remaining runs, but only for contacts that still exist.
func TestManyEventsAtOnce(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		const crowd = 70
		var ids []string
		for range 3 {
			ids = append(ids, s.automation(trigger("postrider:email.opened"),
				step("day", engine.Delay, `{"duration": "1 day"}`)))
		}
		waits := s.automation(trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "postrider:email.opened"}`))
		var all []events.Event
		email := s.Send(testnode.Hello(ann))
		for i := range crowd {
			address := fmt.Sprintf("c%d@reader.example", i)
			c := s.contact(address)
			s.happens("go", c, "")
			all = append(all, events.Event{TeamID: s.Acme.TeamID, Type: events.EmailOpened, EmailID: email, ContactID: c,
				Recipient: address, Data: &events.Open{}})
		}
		opened := func() int {
			return s.Count(`SELECT COUNT(*) FROM automation_runs WHERE event = 'postrider:email.opened'`)
		}
		s.Happen(all...)
		if n := opened(); n == 0 || n > 100 {
			t.Errorf("%d runs begin at once", n)
		}
		if n := s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'automations.begin'`); n < 2 {
			t.Errorf("%d jobs begin the rest", n)
		}
		_, err := s.Contacts.Delete(t.Context(), s.Acme.TeamID, "c69@reader.example")
		s.Must(err)
		most, before := 0, opened()
		for len(s.due()) > 0 {
			for _, j := range s.due() {
				s.Must(s.handle(j))
				most, before = max(most, opened()-before), opened()
			}
		}
		if n := opened(); n != 3*(crowd-1) || most > 100 {
			t.Errorf("%d runs have begun, %d of them in one transaction", n, most)
		}
		for _, id := range ids {
			if n := s.Count(`SELECT COUNT(DISTINCT contact_id) FROM automation_runs WHERE automation_id = $1`,
				db.ID(id)); n != crowd-1 {
				t.Errorf("%d contacts have a run", n)
			}
		}
		if n := s.Count(`SELECT COUNT(*) FROM automation_runs WHERE automation_id = $1 AND status = 'completed'`,
			db.ID(waits)); n != crowd-1 {
			t.Errorf("%d runs that waited have gone on", n)
		}
		s.consistent()
	})
}

// Runs that are begun by a job have the same depth as runs that are begun by the event's transaction.
func TestDepthOfJobs(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		for range 6 {
			s.automation(trigger("go"), step("wait", engine.WaitForEvent, `{"event_name": "postrider:contact.updated"}`))
		}
		s.automation(trigger("leave"), step("set", engine.ContactUpdate, `{"unsubscribed": true}`))
		left := s.automation(trigger("postrider:contact.unsubscribed"))
		c := s.contact(ann)
		for range 20 {
			s.happens("go", c, "")
		}
		s.happens("leave", c, "")
		s.Must(s.handle(s.due()[0]))
		if n := s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'automations.begin'`); n != 1 {
			t.Errorf("%d jobs", n)
		}
		s.work()
		s.mustRun(left, "completed: start")
		if n := s.Count(`SELECT depth FROM automation_runs WHERE automation_id = $1`, db.ID(left)); n != 1 {
			t.Errorf("the run has the depth %d", n)
		}
	})
}
