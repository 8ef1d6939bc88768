package automations_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a node with an automations service for the team Acme. The fixture's field answer supplies the responses to
// webhook calls.
type fixture struct {
	*testnode.Node
	a     *automations.Service
	trace *dbtest.Trace // of eachTraced

	called []string // request bodies of the webhook calls, in order
	ids    []string // and their ids
	answer func() (status int, err error)
}

func newFixture(t testing.TB, n *testnode.Node) *fixture {
	t.Helper()
	s := &fixture{Node: n, answer: func() (int, error) { return 200, nil }}
	s.a = s.service()
	n.Recorder.Listen(s.a)
	n.CustomEvents.OnEvent = s.a.OnEvent
	s.template("hello", "Hello")
	return s
}

// service returns an automations service with an empty cache, as a node has it that has just started.
func (s *fixture) service() *automations.Service {
	n := s.Node
	return testnode.Must(automations.New(automations.Deps{DB: n.DB, Queue: n.Queue, Domains: n.Domains, Emails: n.Emails,
		Templates: n.Templates,
		Contacts:  n.Contacts, Teams: n.Teams, Log: n.Log, CheckURL: func(_, url string) (string, error) { return url, nil },
		Call: func(_ context.Context, _, id, _ string, _ map[string]string, body []byte) (int, error) {
			s.called, s.ids = append(s.called, string(body)), append(s.ids, id)
			return s.answer()
		}}))
}

func each(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) { f(t, newFixture(t, n)) })
}

func eachTraced(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	dbtest.EachTraced(t, tracedFixture(f))
}

// sqliteTraced is like eachTraced, but runs the test only on SQLite.
func sqliteTraced(t *testing.T, f func(t *testing.T, s *fixture)) {
	t.Helper()
	dbtest.SQLiteTraced(t, tracedFixture(f))
}

func tracedFixture(f func(t *testing.T, s *fixture)) func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
	return func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newFixture(t, testnode.New(t, d, testnode.Options{}))
		s.trace = trace
		f(t, s)
	}
}

// between calls act once, after a worker has read the next run and prepared its email, but before the worker's
// transaction begins.
func (s *fixture) between(act func()) { s.trace.Before("FROM teams", act) }

// template creates and publishes a template with the given alias and subject.
func (s *fixture) template(alias, subject string, vars ...templates.Declaration) {
	s.T.Helper()
	text := "<p>Dear reader"
	for _, v := range vars {
		text += ", {{{" + v.Key + "}}}"
	}
	_, err := s.Templates.Create(s.T.Context(), s.Acme.TeamID, templates.NewTemplate{Name: alias, Alias: alias,
		From: "Acme <hello@" + testnode.Domain + ">", Subject: subject, HTML: new(text + "</p>"), Variables: vars})
	s.Must(err)
	_, err = s.Templates.Publish(s.T.Context(), s.Acme.TeamID, alias)
	s.Must(err)
}

// step returns the JSON of a graph step with the given JSON config.
func step(key string, kind engine.Type, config string) string {
	return fmt.Sprintf(`{"key": %q, "type": %q, "config": %s}`, key, kind, config)
}

func trigger(event string) string {
	return step("start", engine.Trigger, fmt.Sprintf(`{"event_name": %q}`, event))
}

// sends returns the JSON of a step that sends the template hello.
func sends(key string) string { return step(key, engine.SendEmail, `{"template": {"id": "hello"}}`) }

// links returns the JSON for connections that are given as "from to" or "from to type".
func links(all ...string) string {
	var list []map[string]string
	for _, text := range all {
		f := strings.Fields(text)
		one := map[string]string{"from": f[0], "to": f[1]}
		if len(f) > 2 {
			one["type"] = f[2]
		}
		list = append(list, one)
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// chain returns the JSON for connections that lead from each step to the next.
func chain(steps []string) string {
	var keys, all []string
	for _, text := range steps {
		var one struct{ Key string }
		if err := json.Unmarshal([]byte(text), &one, json.MatchCaseInsensitiveNames(true)); err != nil {
			panic(err)
		}
		keys = append(keys, one.Key)
	}
	for i := range keys[1:] {
		all = append(all, keys[i]+" "+keys[i+1])
	}
	return links(all...)
}

// automation creates an enabled automation with the given steps in sequence.
func (s *fixture) automation(steps ...string) string {
	s.T.Helper()
	return s.graph(automations.NewAutomation{}, chain(steps), steps...)
}

// graph creates an enabled automation with the given connections.
func (s *fixture) graph(n automations.NewAutomation, connections string, steps ...string) string {
	s.T.Helper()
	n.Name, n.Status = "Test", automations.Enabled
	n.Steps, n.Connections = []byte("["+strings.Join(steps, ",")+"]"), []byte(connections)
	a, err := s.a.Create(s.T.Context(), s.Acme.TeamID, n)
	s.Must(err)
	return a.ID
}

// contact creates a contact in the team Acme and returns its id.
func (s *fixture) contact(address string) string {
	s.T.Helper()
	c, _, err := s.Contacts.Upsert(s.T.Context(), s.Acme.TeamID, address, contacts.Change{})
	s.Must(err)
	return c.ID
}

// happens sends an event for the contact with the given id or address. The payload is JSON or "".
func (s *fixture) happens(event, contact, payload string) {
	s.T.Helper()
	s.Must(s.tryEvent(event, contact, payload))
}

func (s *fixture) tryEvent(event, contact, payload string) error {
	return s.DB.Update(s.T.Context(), func(tx *db.Tx) error {
		o := customevents.Occurrence{TeamID: s.Acme.TeamID, Name: event, ContactID: contact, Payload: payload, At: tx.Now()}
		if strings.Contains(contact, "@") {
			o.ContactID, o.Address = "", contact
		}
		return s.a.OnEvent(s.T.Context(), tx, o)
	})
}

// due returns the due jobs of package automations, ordered by due time.
func (s *fixture) due() []jobs.Job {
	s.T.Helper()
	all, err := s.tryDue()
	s.Must(err)
	return all
}

func (s *fixture) tryDue() (all []jobs.Job, err error) {
	rows, err := s.DB.Query(s.T.Context(), `SELECT id, kind, lane, team_id, payload, attempt, tries FROM jobs
		WHERE kind LIKE 'automations.%' AND holder IS NULL AND run_at <= $1 ORDER BY run_at, id`, s.DB.Now().UnixMicro())
	all, err = db.Collect(rows, err, func(r db.Row) (j jobs.Job, err error) {
		err = r.Scan((*db.ID)(&j.ID), &j.Kind, &j.Lane, (*db.ID)(&j.TeamID), &j.Payload, &j.Attempt, &j.Tries)
		return j, err
	})
	return all, err
}

// handle claims a job and calls its handler, as the job runner does. If the job no longer exists, handle does nothing.
// If the handler fails, the job becomes due again.
func (s *fixture) handle(j jobs.Job) error {
	ctx := s.T.Context()
	claimed := false
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
		err := tx.QueryRow(ctx, `UPDATE jobs SET holder = id, run_at = $2, attempt = attempt + 1 WHERE id = $1
			AND holder IS NULL RETURNING attempt`, db.ID(j.ID), int64(1)<<62).Scan(&j.Attempt)
		if claimed = err == nil; errors.Is(err, db.ErrNoRows) {
			err = nil
		}
		return err
	})
	if err != nil || !claimed {
		return err
	}
	kinds := s.a.Kinds()
	i := slices.IndexFunc(kinds, func(k jobs.Kind) bool { return k.Name == j.Kind })
	if err = kinds[i].Handle(ctx, j); err != nil {
		s.giveBack()
	}
	return err
}

// giveBack makes all claimed jobs due again.
func (s *fixture) giveBack() {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		tx.Queue(s.T.Context(), `UPDATE jobs SET holder = NULL, run_at = 0 WHERE holder = id`)
		return nil
	})
}

// work runs jobs until none is due.
func (s *fixture) work() {
	s.T.Helper()
	for range 200 {
		all := s.due()
		if len(all) == 0 {
			return
		}
		for _, j := range all {
			s.Must(s.handle(j))
		}
	}
	s.T.Fatal("the jobs do not come to an end")
}

// pass simulates the passing of the given time for runs and their jobs.
func (s *fixture) pass(d time.Duration) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		ctx, by := s.T.Context(), d.Microseconds()
		tx.Queue(ctx, `UPDATE jobs SET run_at = run_at - $1 WHERE kind LIKE 'automations.%' AND run_at < $2`, by,
			int64(1)<<60)
		tx.Queue(ctx, `UPDATE automation_runs SET waits_until = waits_until - $1 WHERE waits_until > 0`, by)
		tx.Queue(ctx, `UPDATE automation_contacts SET hour_from = hour_from - $1, limited_at = limited_at - $1`, by)
		return nil
	})
}

// runs returns the runs of an automation, oldest first, with their steps.
func (s *fixture) runs(automationID string) []automations.Run {
	s.T.Helper()
	all, _, _, err := s.a.Runs(s.T.Context(), s.Acme.TeamID, automationID, nil, page.Page{})
	s.Must(err)
	slices.Reverse(all)
	for i := range all {
		all[i], err = s.a.Run(s.T.Context(), s.Acme.TeamID, automationID, all[i].ID)
		s.Must(err)
	}
	return all
}

// runLines formats a run as one line: its status and reason, followed by its steps with their statuses and reasons.
func runLines(r automations.Run) string {
	text := string(r.Status)
	if r.Reason != "" {
		text += "(" + string(r.Reason) + ")"
	}
	text += ":"
	for _, s := range r.Steps {
		text += " " + s.Key
		if s.Status != engine.StepCompleted {
			text += "=" + string(s.Status)
		}
		if s.Failure != nil && s.Failure.Reason != "" {
			text += "(" + s.Failure.Reason + ")"
		}
		if why, ok := s.Output["reason"]; ok {
			text += fmt.Sprintf("(%v)", why)
		}
	}
	return text
}

// mustRun compares an automation's runs with the expected lines. The runs are formatted by runLines, oldest first.
func (s *fixture) mustRun(automationID string, want ...string) {
	s.T.Helper()
	var got []string
	for _, r := range s.runs(automationID) {
		got = append(got, runLines(r))
	}
	if !slices.Equal(got, want) {
		s.T.Errorf("runs are\n%s\nand not\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	s.consistent()
}

// consistent checks that the rows for runs, steps, jobs and waits agree. Call consistent only while no job is running.
// Each active run must have one job and be included in its contact's run counter. Each run that is waiting for an event
// must have a row for the wait.
func (s *fixture) consistent() {
	s.T.Helper()
	runID := `LOWER(HEX(r.id))`
	if s.DB.Engine() == "postgres" {
		runID = `REPLACE(CAST(r.id AS TEXT), '-', '')`
	}
	for query, what := range map[string]string{
		`SELECT COUNT(*) FROM automation_runs r WHERE r.status = 'running' AND 1 <> (SELECT COUNT(*) FROM jobs j
			WHERE j.kind IN ('automations.run', 'automations.call') AND REPLACE(j.dedupe, '-',
			'') = ` + runID + `)`: "runs have no job, or two",
		`SELECT COUNT(*) FROM jobs j WHERE j.kind IN ('automations.run', 'automations.call') AND NOT EXISTS (SELECT 1
			FROM automation_runs r WHERE REPLACE(j.dedupe, '-',
			'') = ` + runID + ` AND r.status = 'running')`: "jobs have no run",
		`SELECT COUNT(*) FROM automation_runs r WHERE r.waits_for <> '' AND NOT EXISTS (SELECT 1 FROM automation_waits w
			WHERE w.run_id = r.id AND w.event_name = r.waits_for AND w.contact_id = r.contact_id
			AND w.team_id = r.team_id)`: "runs wait for events that do not find them",
		`SELECT COUNT(*) FROM automation_waits w WHERE NOT EXISTS (SELECT 1 FROM automation_runs r
			WHERE r.id = w.run_id AND (r.waits_for = w.event_name OR r.pending <> ''))`: "events find runs that do not wait " +
			"for them",
		`SELECT COUNT(*) FROM automation_contacts c WHERE c.active <> (SELECT COUNT(*) FROM automation_runs r
			WHERE r.automation_id = c.automation_id AND r.contact_id = c.contact_id
			AND r.epoch = c.epoch AND r.status = 'running')`: "contacts count other runs than they have",
		`SELECT COUNT(*) FROM automation_runs r WHERE r.steps <> (SELECT COUNT(*) FROM automation_run_steps p
			WHERE p.run_id = r.id)`: "runs count other steps than they have",
		`SELECT COUNT(*) FROM automation_run_steps p JOIN automation_runs r ON r.id = p.run_id WHERE r.status <> 'running'
			AND p.status IN ('waiting', 'running')`: "runs have ended with steps that have not",
	} {
		if n := s.Count(query); n > 0 {
			s.T.Errorf("%d %s", n, what)
		}
	}
}

// mailed returns the subjects of the emails to an address, oldest first.
func (s *fixture) mailed(address string) (subjects []string) {
	s.T.Helper()
	rows, err := s.DB.Query(s.T.Context(), `SELECT subject FROM emails WHERE recipient = $1 ORDER BY id`, address)
	subjects, err = db.Collect(rows, err, func(r db.Row) (text string, err error) {
		err = r.Scan(&text)
		return text, err
	})
	s.Must(err)
	return subjects
}
