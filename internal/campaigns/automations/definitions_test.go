package automations_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/templates"
)

// author is a node with an automations service. The methods of author act for the team Acme.
type author struct {
	*testnode.Node
	a *automations.Service
}

func eachAuthor(t *testing.T, f func(t *testing.T, n *author)) {
	t.Helper()
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		hooks := testnode.Must(webhooks.New(webhooks.Config{}, webhooks.Deps{DB: n.DB, Queue: n.Queue, Keys: n.Keys,
			Guard: netguard.New(netguard.Options{}), Domains: n.Domains, Log: n.Log, Notify: n.Quotas.Notify}))
		a := testnode.Must(automations.New(automations.Deps{DB: n.DB, Queue: n.Queue, Domains: n.Domains, Emails: n.Emails,
			Templates: n.Templates,
			Contacts:  n.Contacts, Teams: n.Teams, Log: n.Log, CheckURL: hooks.CheckURL, Call: hooks.Call}))
		n.Recorder.Listen(a)
		f(t, &author{n, a})
	})
}

// Two graphs without references: a single trigger, and a trigger followed by a wait.
const (
	alone   = `[{"key":"start","type":"trigger","config":{"event_name":"signup"}}]`
	waiting = `[{"key":"start","type":"trigger","config":{"event_name":"signup"}},
		{"key":"wait","type":"wait_for_event","config":{"event_name":"paid","timeout":"3 days"}}]`
	toWait = `[{"from":"start","to":"wait"}]`
)

// made creates an automation for the team Acme that waits for an event.
func (n *author) made(status automations.Status) automations.Automation {
	n.T.Helper()
	a, err := n.a.Create(n.T.Context(), n.Acme.TeamID, automations.NewAutomation{Name: "Welcome", Status: status,
		Steps: []byte(waiting), Connections: []byte(toWait)})
	n.Must(err)
	return a
}

func (n *author) change(id string, c automations.Change) automations.Automation {
	n.T.Helper()
	a, err := n.a.Update(n.T.Context(), n.Acme.TeamID, id, c)
	n.Must(err)
	return a
}

// happens sends an event for a contact to the automations service.
func (n *author) happens(event string, c contacts.Contact, payload string) {
	n.T.Helper()
	n.Update(func(tx *db.Tx) error {
		return n.a.OnEvent(n.T.Context(), tx, customevents.Occurrence{TeamID: c.TeamID, Name: event, ContactID: c.ID,
			Address: c.Address, Payload: payload, At: tx.Now()})
	})
}

func (n *author) contact(address string) contacts.Contact {
	n.T.Helper()
	c, _, err := n.Contacts.Upsert(n.T.Context(), n.Acme.TeamID, address, contacts.Change{})
	n.Must(err)
	return c
}

// refused fails the test unless err is a fault for the given field with a message that contains the given text.
func refused(t *testing.T, err error, field, text string) {
	t.Helper()
	f, ok := errors.AsType[*fault.Error](err)
	if !ok || f.Field != field || !strings.Contains(f.Message, text) {
		t.Errorf("%+v (%v), want a fault of %q with %q", f, err, field, text)
	}
}

func TestCreateRefuses(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		right := automations.NewAutomation{Name: "x", Steps: []byte(alone), Connections: []byte(`[]`)}
		for _, c := range []struct {
			change      func(n *automations.NewAutomation)
			field, text string
		}{
			{func(n *automations.NewAutomation) { n.Name = " " }, "name", "Missing `name` field."},
			{func(n *automations.NewAutomation) { n.Name = strings.Repeat("ä", 256) }, "name",
				"at most 255 characters"},
			{func(n *automations.NewAutomation) { n.Name = "a\nb" }, "name", "no control characters"},
			{func(n *automations.NewAutomation) { n.Status = "active" }, "status", "`enabled` or `disabled`"},
			{func(n *automations.NewAutomation) { n.Reentry = "never" }, "reentry", "`once_at_a_time`"},
			{func(n *automations.NewAutomation) { n.Steps = nil }, "steps", "Missing `steps` field."},
			{func(n *automations.NewAutomation) { n.Steps = []byte("null") }, "steps", "Missing `steps` field."},
			{func(n *automations.NewAutomation) { n.Connections = nil }, "connections", "Missing `connections` field."},
			{func(n *automations.NewAutomation) { n.Connections = []byte(`[{"from":"start","to":"end"}]`) },
				"connections[0].to", "end"},
		} {
			of := right
			c.change(&of)
			_, err := n.a.Create(t.Context(), n.Acme.TeamID, of)
			refused(t, err, c.field, c.text)
		}
		of := right
		of.Name = strings.Repeat("ä", 255)
		_, err := n.a.Create(t.Context(), n.Acme.TeamID, of)
		n.Must(err)
	})
}

// Create checks that the objects to which steps refer exist and can be used. The error names the step and the path of
// the reference.
func TestReferences(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		ctx, teamID := t.Context(), n.Acme.TeamID
		html := "<p>{{{NAME}}} {{{CODE}}}</p>"
		news, err := n.Templates.Create(ctx, teamID, templates.NewTemplate{Name: "News", Alias: "news", HTML: &html,
			From: "a@" + testnode.Domain, Subject: "s", Variables: []templates.Declaration{{Key: "NAME", Type: "string"},
				{Key: "CODE", Type: "number", Fallback: scalar.OfNumber(1)}}})
		n.Must(err)
		_, err = n.Templates.Publish(ctx, teamID, news.ID)
		n.Must(err)
		_, err = n.Templates.Create(ctx, teamID, templates.NewTemplate{Name: "Draft", Alias: "draft", HTML: &html})
		n.Must(err)
		plan := contacts.NewProperty{Name: "plan", Type: scalar.String}
		_, err = n.Contacts.CreateProperty(ctx, teamID, plan)
		n.Must(err)
		_, err = n.Contacts.CreateProperty(ctx, teamID, contacts.NewProperty{Name: "seats", Type: scalar.Number})
		n.Must(err)
		byHand, err := n.Contacts.Segments.Create(ctx, teamID, segments.Definition{Name: "x"})
		n.Must(err)
		filtered, err := n.Contacts.Segments.Create(ctx, teamID, segments.Definition{Name: "x",
			Filter: `{"type":"rule","field":"contact.email","operator":"contains","value":"x"}`})
		n.Must(err)
		topic, err := n.Contacts.CreateTopic(ctx, teamID, contacts.NewTopic{Name: "x", Default: contacts.OptIn})
		n.Must(err)
		const nobody = "00000000-0000-7000-8000-000000000000"
		for _, c := range []struct{ kind, config, field, text string }{
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"topic_id":"` + topic.ID +
				`","from":"A <a@acme.example>","reply_to":"b@acme.example"}`, "", ""},
			{"send_email",
				`{"template":{"id":"` + strings.ToUpper(news.ID) + `","variables":{"NAME":{"var":"event.x"}}}}`,
				"", ""},
			{"send_email", `{"template":{"id":"none"}}`, "template.id",
				"Step `do`: The `steps[1].config.template.id` field names no template of this team."},
			{"send_email", `{"template":{"id":"draft"}}`, "template.id", "has not been published"},
			{"send_email", `{"template":{"id":"news"}}`, "template.variables.NAME",
				"Step `do`: The variable NAME of the " +
					"template has no fallback: give it in `steps[1].config.template.variables.NAME`."},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"topic_id":"` + nobody + `"}`,
				"topic_id", "names no topic of this team"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"from":"x"}`, "from",
				"must be an address"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"reply_to":"x"}`, "reply_to",
				"must be an address"},
			{"add_to_segment", `{"segment_id":"` + byHand.ID + `"}`, "", ""},
			{"add_to_segment", `{"segment_id":"` + nobody + `"}`, "segment_id", "names no segment of this team"},
			{"add_to_segment", `{"segment_id":"` + filtered.ID + `"}`, "segment_id", "names a segment with a filter"},
			{"contact_update", `{"properties":{"plan":"pro"}}`, "", ""},
			{"contact_update", `{"properties":{"plan":null}}`, "", ""},
			{"contact_update", `{"properties":{"plan":3}}`, "", ""},
			{"contact_update", `{"properties":{"seats":"3"}}`, "", ""},
			{"contact_update", `{"properties":{"seats":"03"}}`, "properties.seats", "must be a number"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x","CODE":"x"}}}`, "template.variables.CODE",
				"must be a number"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":7,"CODE":"7"}}}`, "", ""},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x","FIRST_NAME":"y"}},
				"from":"{{{NAME}}} <hello@` + testnode.Domain + `>","subject":"{{{CODE}}} {{{contact.x}}} {{{LAST_NAME}}}",
				"reply_to":"{{{EMAIL}}}"}`, "", ""},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x","UNSUBSCRIBE_URL":"y"}}}`,
				"template.variables.UNSUBSCRIBE_URL", "is reserved"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"subject":"{{{NONE}}}"}`, "subject",
				"uses the variable NONE, which the template does not declare"},
			{"send_email", `{"template":{"id":"news","variables":{"NAME":"x"}},"reply_to":"{{{NAME"}`, "reply_to",
				"is not closed"},
			{"contact_update", `{"properties":{"size":3}}`, "properties.size",
				"contact property size, which the team does not have"},
			{"condition", `{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`, "", ""},
			{"condition", `{"type":"rule","field":"event.total","operator":"gt","value":5}`, "", ""},
			{"condition", `{"type":"rule","field":"contact.properties.size","operator":"eq","value":"pro"}`, ".field",
				"no such contact property"},
			{"wait_for_event", `{"event_name":"resend:contact.created"}`, "", ""},
			{"wait_for_event", `{"event_name":"resend:contact.born"}`, "event_name",
				"names no system event. There are `postrider:contact.created`"},
			{"webhook", `{"url":"https://hooks.example.org/x"}`, "", ""},
			{"webhook", `{"url":"http://hooks.example.org/x"}`, "url", "https://"},
			{"webhook", `{"url":"https://127.0.0.1/x"}`, "url", ""},
		} {
			steps := fmt.Sprintf(`[{"key":"start","type":"trigger","config":{"event_name":"signup"}},
				{"key":"do","type":%q,"config":%s}]`, c.kind, c.config)
			_, err := n.a.Create(ctx, teamID, automations.NewAutomation{Name: "x", Steps: []byte(steps),
				Connections: []byte(`[{"from":"start","to":"do"}]`)})
			if c.field == "" {
				if err != nil {
					t.Errorf("%s: %v", c.config, err)
				}
				continue
			}
			place := "steps[1].config." + strings.TrimPrefix(c.field, ".")
			refused(t, err, place, c.text)
			refused(t, err, place, "Step `do`: ")
		}
	})
}

// Update creates a new version for a different graph, but not for an identical graph.
func TestVersions(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		same := n.change(a.ID, automations.Change{Name: new("Hello"), Steps: []byte(waiting),
			Connections: []byte(toWait)})
		if same.Version != 1 || same.Name != "Hello" || !same.UpdatedAt.After(a.UpdatedAt) {
			t.Errorf("%+v", same)
		}
		other := n.change(a.ID, automations.Change{Steps: []byte(alone), Connections: []byte(`[]`)})
		got, err := n.a.Get(t.Context(), n.Acme.TeamID, a.ID)
		n.Must(err)
		if other.Version != 2 || got.Version != 2 || len(got.Graph.Steps) != 1 || len(got.Graph.Connections) != 0 {
			t.Errorf("%+v, %+v", other, got)
		}
		if c := n.Count(`SELECT COUNT(*) FROM automation_versions`); c != 2 {
			t.Errorf("%d versions", c)
		}
		for _, c := range []struct {
			change      automations.Change
			field, text string
		}{
			{automations.Change{}, "", "changes nothing"},
			{automations.Change{Steps: []byte(alone)}, "connections", "changed together"},
			{automations.Change{Connections: []byte(`[]`), Steps: []byte("null")}, "steps", "changed together"},
			{automations.Change{Name: new("")}, "name", "Missing"},
		} {
			_, err := n.a.Update(t.Context(), n.Acme.TeamID, a.ID, c.change)
			refused(t, err, c.field, c.text)
		}
	})
}

// triggers returns the trigger rows, which determine which events begin runs.
func (n *author) triggers() (all []string) {
	n.T.Helper()
	rows, err := n.DB.Query(n.T.Context(), `SELECT event_name, automation_id, version_id, epoch, reentry
		FROM automation_triggers ORDER BY event_name, automation_id`)
	all, err = db.Collect(rows, err, func(r db.Row) (string, error) {
		var event, automation, version, reentry string
		var epoch int64
		err := r.Scan(&event, (*db.ID)(&automation), (*db.ID)(&version), &epoch, &reentry)
		return fmt.Sprint(event, " ", epoch, " ", reentry), err
	})
	n.Must(err)
	return all
}

// The trigger rows always match the graphs of the enabled automations.
func TestTriggers(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		is := func(want ...string) {
			t.Helper()
			if got := n.triggers(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		a := n.made(automations.Disabled)
		is()
		n.change(a.ID, automations.Change{Status: new(automations.Enabled)})
		is("signup 1 always")
		n.change(a.ID, automations.Change{Reentry: new(automations.Once)})
		is("signup 1 once")
		n.change(a.ID, automations.Change{Steps: []byte(`[{"key":"a","type":"trigger","config":{"event_name":"login"}},
			{"key":"b","type":"trigger","config":{"event_name":"resend:contact.created"}},
			{"key":"c","type":"delay","config":{"duration":"1 day"}}]`),
			Connections: []byte(`[{"from":"a","to":"c"},{"from":"b","to":"c"}]`)})
		is("login 1 once", "postrider:contact.created 1 once")
		n.change(a.ID, automations.Change{Status: new(automations.Disabled)})
		is()
		n.change(a.ID, automations.Change{Status: new(automations.Enabled)})
		is("login 1 once", "postrider:contact.created 1 once")
		stopped, err := n.a.Stop(t.Context(), n.Acme.TeamID, a.ID)
		n.Must(err)
		if is(); stopped.Status != automations.Disabled {
			t.Errorf("%+v", stopped)
		}
		n.change(a.ID, automations.Change{Status: new(automations.Enabled)})
		is("login 2 once", "postrider:contact.created 2 once")
		n.Must(n.a.Delete(t.Context(), n.Acme.TeamID, a.ID))
		is()
	})
}

// Enabling an automation fails if it refers to deleted objects. Renaming or disabling an automation does not check its
// references.
func TestEnablingChecksAgain(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		g, err := n.Contacts.Segments.Create(t.Context(), n.Acme.TeamID, segments.Definition{Name: "x"})
		n.Must(err)
		a, err := n.a.Create(t.Context(), n.Acme.TeamID, automations.NewAutomation{Name: "x", Steps: fmt.Appendf(nil,
			`[{"key":"start","type":"trigger","config":{"event_name":"signup"}},
			{"key":"add","type":"add_to_segment","config":{"segment_id":%q}}]`, g.ID), Connections: []byte(
			`[{"from":"start","to":"add"}]`), Status: automations.Enabled})
		n.Must(err)
		n.Must(n.Contacts.Segments.Delete(t.Context(), n.Acme.TeamID, g.ID))
		n.change(a.ID, automations.Change{Name: new("y")})
		n.change(a.ID, automations.Change{Status: new(automations.Disabled)})
		_, err = n.a.Update(t.Context(), n.Acme.TeamID, a.ID, automations.Change{Status: new(automations.Enabled)})
		refused(t, err, "steps[1].config.segment_id", "names no segment")
	})
}

// An automation can be enabled only if the team may send from the senders of its emails. A disabled automation may have
// any sender.
func TestEnablingChecksSenders(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		ctx, teamID, html := t.Context(), n.Acme.TeamID, "<p>x</p>"
		for alias, from := range map[string]string{"ours": "a@" + testnode.Domain, "theirs": "a@other.example", "none": ""} {
			_, err := n.Templates.Create(ctx, teamID, templates.NewTemplate{Name: alias, Alias: alias, HTML: &html,
				From: from, Subject: "s"})
			n.Must(err)
			_, err = n.Templates.Publish(ctx, teamID, alias)
			n.Must(err)
		}
		for config, want := range map[string]string{
			`{"template":{"id":"ours"}}`:                             "",
			`{"template":{"id":"theirs"}}`:                           "other.example of the `from` field is not verified",
			`{"template":{"id":"none"}}`:                             "neither the step nor its template has a sender",
			`{"template":{"id":"none"},"from":"a@acme.example"}`:     "",
			`{"template":{"id":"ours"},"from":"A <a@else.example>"}`: "else.example of the `from` field is not verified",
		} {
			steps := fmt.Sprintf(`[{"key":"start","type":"trigger","config":{"event_name":"signup"}},
				{"key":"do","type":"send_email","config":%s}]`, config)
			in := automations.NewAutomation{Name: "x", Steps: []byte(steps), Connections: []byte(`[{"from":"start","to":"do"}]`)}
			a, err := n.a.Create(ctx, teamID, in)
			n.Must(err)
			_, err = n.a.Update(ctx, teamID, a.ID, automations.Change{Status: new(automations.Enabled)})
			in.Status = automations.Enabled
			_, again := n.a.Create(ctx, teamID, in)
			for _, err := range []error{err, again} {
				if want == "" {
					n.Must(err)
					continue
				}
				refused(t, err, "steps[1].config.from", want)
				refused(t, err, "steps[1].config.from", "Step `do`: ")
			}
		}
	})
}

// Concurrent changes to an automation are all applied, and none overwrites another.
func TestChangesAtOnce(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Disabled)
		var all sync.WaitGroup
		for _, c := range []automations.Change{{Name: new("y")}, {Reentry: new(automations.Once)},
			{Status: new(automations.Enabled)}, {Steps: []byte(alone), Connections: []byte(`[]`)}} {
			all.Go(func() {
				if _, err := n.a.Update(t.Context(), n.Acme.TeamID, a.ID, c); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		got, err := n.a.Get(t.Context(), n.Acme.TeamID, a.ID)
		n.Must(err)
		if got.Name != "y" || got.Reentry != automations.Once || got.Status != automations.Enabled ||
			got.Version != 2 || fmt.Sprint(n.triggers()) != "[signup 1 once]" {
			t.Errorf("%+v, %q", got, n.triggers())
		}
	})
}

func TestLimitsOfATeam(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		for range automations.MaxEvent - 1 {
			n.made(automations.Enabled)
		}
		disabled := n.made(automations.Disabled)
		more := func() (made int) {
			var all sync.WaitGroup
			var mu sync.Mutex
			for range 3 {
				all.Go(func() {
					_, err := n.a.Create(t.Context(), n.Acme.TeamID, automations.NewAutomation{Name: "x",
						Status: automations.Enabled, Steps: []byte(alone), Connections: []byte(`[]`)})
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						made++
					} else {
						refused(t, err, "steps[0].config.event_name", "There are 50 enabled automations")
					}
				})
			}
			all.Wait()
			return made
		}
		if made := more(); made != 1 {
			t.Errorf("%d more were enabled", made)
		}
		_, err := n.a.Update(t.Context(), n.Acme.TeamID, disabled.ID,
			automations.Change{Status: new(automations.Enabled)})
		refused(t, err, "steps[0].config.event_name", "There are 50 enabled automations")

		n.Update(func(tx *db.Tx) error {
			for i := n.Count(`SELECT COUNT(*) FROM automations`); i < automations.MaxTeam; i++ {
				tx.Queue(t.Context(), `INSERT INTO automations (id, team_id, name, status, reentry, version_id,
					epoch, revision,
					created_at, updated_at, deleted_at) VALUES ($1, $2, 'x', 'disabled', 'always', $1, 1, 1, 1, 1, 0)`,
					db.ID(dbtest.ID(fmt.Sprint("x", i))), db.ID(n.Acme.TeamID))
			}
			return nil
		})
		_, err = n.a.Duplicate(t.Context(), n.Acme.TeamID, disabled.ID)
		refused(t, err, "", "at most 1000 automations")
		n.Must(n.a.Delete(t.Context(), n.Acme.TeamID, disabled.ID))
		n.made(automations.Disabled)
	})
}

func TestDuplicate(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		a := n.made(automations.Enabled)
		n.change(a.ID, automations.Change{Name: new(strings.Repeat("n", automations.MaxName)),
			Reentry: new(automations.Once)})
		b, err := n.a.Duplicate(t.Context(), n.Acme.TeamID, a.ID)
		n.Must(err)
		got, err := n.a.Get(t.Context(), n.Acme.TeamID, b.ID)
		n.Must(err)
		if got.Name != strings.Repeat("n", automations.MaxName-7)+" (copy)" || got.Status != automations.Disabled ||
			got.Reentry != automations.Once || got.Version != 1 || len(got.Graph.Steps) != 2 || len(n.triggers()) != 1 {
			t.Errorf("%+v", got)
		}
	})
}

func TestList(t *testing.T) {
	eachAuthor(t, func(t *testing.T, n *author) {
		list := func(status automations.Status, p page.Page) (ids []string, more bool) {
			t.Helper()
			all, more, err := n.a.List(t.Context(), n.Acme.TeamID, status, p)
			n.Must(err)
			for _, a := range all {
				ids = append(ids, a.ID)
			}
			return ids, more
		}
		one, two, three := n.made(automations.Enabled), n.made(automations.Disabled), n.made(automations.Enabled)
		gone := n.made(automations.Enabled)
		n.Must(n.a.Delete(t.Context(), n.Acme.TeamID, gone.ID))
		for _, c := range []struct {
			status automations.Status
			p      page.Page
			want   []string
			more   bool
		}{
			{"", page.Page{Limit: 20}, []string{three.ID, two.ID, one.ID}, false},
			{"enabled", page.Page{Limit: 20}, []string{three.ID, one.ID}, false},
			{"enabled", page.Page{Limit: 1}, []string{three.ID}, true},
			{"enabled", page.Page{Limit: 1, After: two.ID}, []string{one.ID}, false},
			{"disabled", page.Page{Limit: 20, Before: one.ID}, []string{two.ID}, false},
		} {
			if ids, more := list(c.status, c.p); fmt.Sprint(ids) != fmt.Sprint(c.want) || more != c.more {
				t.Errorf("%q %+v: %q, %v", c.status, c.p, ids, more)
			}
		}
		_, _, err := n.a.List(t.Context(), n.Acme.TeamID, "stopped", page.Page{})
		refused(t, err, "status", "`enabled` or `disabled`")
		if _, err := n.a.Get(t.Context(), n.Acme.TeamID, gone.ID); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
		if _, err := n.a.Get(t.Context(), n.Other.TeamID, one.ID); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
	})
}
