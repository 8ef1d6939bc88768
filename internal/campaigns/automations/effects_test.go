package automations_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// TestEffects checks that each type of step has the intended effect and records its output.
func TestEffects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		_, err := s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "plan", Type: scalar.String,
			Fallback: scalar.OfText("free")})
		s.Must(err)
		segment, err := s.Contacts.Segments.Create(ctx, team, segments.Definition{Name: "Customers"})
		s.Must(err)
		s.template("receipt", "For {{{PLAN}}}", templates.Declaration{Key: "PLAN", Type: "string"})
		id := s.graph(automations.NewAutomation{}, links("start first", "first update", "update pro", "pro add condition_met",
			"add mail", "mail call", "call delete", "delete after", "after rename", "rename end"), trigger("paid"),
			step("first", engine.SendEmail, `{"template": {"id": "receipt", "variables": {"PLAN":
				{"var": "contact.properties.plan"}}}}`),
			step("update", engine.ContactUpdate, `{"first_name": {"var": "event.name"}, "properties": {"plan": "pro"}}`),
			step("pro", engine.Condition, `{"type": "and", "rules": [
				{"type": "rule", "field": "contact.properties.plan", "operator": "eq", "value": "pro"},
				{"type": "rule", "field": "contact.first_name", "operator": "eq", "value": "Ann"}]}`),
			step("add", engine.AddToSegment, `{"segment_id": "`+segment.ID+`"}`),
			step("mail", engine.SendEmail, `{"template": {"id": "receipt", "variables": {"PLAN":
				{"var": "contact.properties.plan"}}}, "subject": "Thank you", "reply_to": "help@acme.example"}`),
			step("call", engine.Webhook, `{"url": "https://acme.example/hook", "payload": {"sum": {"var": "event.sum"}}}`),
			step("delete", engine.ContactDelete, `{}`), sends("after"),
			step("rename", engine.ContactUpdate, `{"first_name": "Nobody"}`),
			step("end", engine.Webhook, `{"url": "https://acme.example/hook"}`))
		s.happens("paid", ann, `{"name": "Ann", "sum": 5}`)
		for len(s.due()) > 0 && len(s.called) == 0 {
			s.work1()
		}
		at, err := s.Contacts.Member(ctx, team, segment.ID, ann)
		if err != nil || at.FirstName != "Ann" || at.Properties["plan"] != scalar.OfText("pro") {
			t.Errorf("the contact is %+v, %v", at, err)
		}
		call := s.runs(id)[0].Steps[6]
		if call.Key != "call" || call.Output["status"] != 200.0 {
			t.Errorf("the step of the call is %+v", call)
		}
		s.work()
		s.mustRun(id, "completed: start first update pro add mail call delete after=skipped(contact_deleted) "+
			"rename=skipped(contact_deleted) end")
		if got := s.mailed(ann); !slices.Equal(got, []string{"For free", "Thank you"}) {
			t.Errorf("the emails are %q", got)
		}
		if len(s.called) != 2 || !strings.Contains(s.called[0], `"sum":5`) || s.ids[0] == s.ids[1] {
			t.Errorf("the calls are %q, %q", s.called, s.ids)
		}
		var emailID string
		s.Must(s.DB.QueryRow(t.Context(), `SELECT id FROM emails WHERE subject = 'Thank you'`).Scan((*db.ID)(&emailID)))
		email := s.Email(emailID)
		if email.ContactID != at.ID || email.TemplateID == "" || !slices.Equal(email.ReplyTo, []string{"help@acme.example"}) {
			t.Errorf("the email is %+v", email)
		}
	})
}

// work1 runs the first due job.
func (s *fixture) work1() {
	s.T.Helper()
	s.Must(s.handle(s.due()[0]))
}

// If a step refers to a deleted, unpublished or forbidden object, the run fails with a reason.
func TestStepsThatFail(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		segment := func(filter string) string {
			g, err := s.Contacts.Segments.Create(ctx, team, segments.Definition{Name: "x", Filter: filter})
			s.Must(err)
			return g.ID
		}
		gone, topic := segment(""), s.topic("News", contacts.OptIn)
		property, err := s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "plan", Type: scalar.String})
		s.Must(err)
		_, err = s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "city", Type: scalar.String})
		s.Must(err)
		s.template("gone", "x")
		_, err = s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "seats", Type: scalar.Number})
		s.Must(err)
		s.template("counts", "x", templates.Declaration{Key: "N", Type: "number"})
		s.template("titled", "{{{TITLE}}}", templates.Declaration{Key: "TITLE", Type: "string"})
		s.template("needs", "x", templates.Declaration{Key: "NAME", Type: "string"})
		cases := []struct {
			name, step string
			harm       func()
			reason     string
		}{
			{"the template is deleted", step("x", engine.SendEmail, `{"template": {"id": "gone"}}`), func() {
				_, err := s.Templates.Delete(ctx, team, "gone")
				s.Must(err)
			}, "template_not_found"},
			{"a variable has no value", step("x", engine.SendEmail, `{"template": {"id": "needs", "variables":
				{"NAME": {"var": "event.name"}}}}`), nil, "variable_missing"},
			{"the topic is deleted", step("x", engine.SendEmail, `{"template": {"id": "hello"}, "topic_id": "`+topic+`"}`),
				func() { s.Must(s.Contacts.DeleteTopic(ctx, team, topic)) }, "topic_not_found"},
			{"the segment is deleted", step("x", engine.AddToSegment, `{"segment_id": "`+gone+`"}`),
				func() { s.Must(s.Contacts.Segments.Delete(ctx, team, gone)) }, "segment_not_found"},
			{"the property is deleted", step("x", engine.ContactUpdate, `{"properties": {"plan": "pro"}}`),
				func() { s.Must(s.Contacts.DeleteProperty(ctx, team, property.ID)) }, "property_not_found"},
			{"a value is of the wrong type", step("x", engine.ContactUpdate, `{"properties": {"seats":
				{"var": "event.word"}}}`), nil, "property_wrong_type"},
			{"a value is too long", step("x", engine.ContactUpdate, `{"properties": {"city":
				{"var": "event.long"}}}`), nil, "property_unusable"},
			{"a name is too long", step("x", engine.ContactUpdate, `{"first_name": {"var": "event.long"}}`), nil,
				"name_unusable"},
			{"a boolean is neither", step("x", engine.ContactUpdate, `{"unsubscribed": {"var": "event.word"}}`), nil,
				"value_not_boolean"},
			{"a variable is of the wrong type", step("x", engine.SendEmail, `{"template": {"id": "counts", "variables":
				{"N": {"var": "event.word"}}}}`), nil, "variable_unusable"},
			{"the subject is too long", step("x", engine.SendEmail, `{"template": {"id": "titled", "variables":
				{"TITLE": {"var": "event.title"}}}}`), nil, "subject_invalid"},
		}
		ids := make([]string, len(cases))
		for i, c := range cases {
			ids[i] = s.automation(trigger(fmt.Sprint("event", i)), c.step, step("never", engine.Delay, `{"duration": "1 day"}`))
		}
		for i, c := range cases {
			if c.harm != nil {
				c.harm()
			}
			s.pass(2 * time.Second) // let the cached templates expire
			s.happens(fmt.Sprint("event", i), ann, `{"sum": 5, "word": "five", "long": "`+strings.Repeat("x", 2001)+
				`", "title": "`+strings.Repeat("x", 1500)+`"}`)
			s.work()
			got := s.runs(ids[i])[0]
			if want := fmt.Sprintf("failed(%s): start x=failed(%[1]s)", c.reason); runLines(got) != want || got.Message == "" {
				t.Errorf("%s: %s, %q", c.name, runLines(got), got.Message)
			}
		}
		s.consistent()
	})
}

// A value is converted to the type of a property or a variable if the conversion is exact. In conditions, a number
// equals the string that emails show for it.
func TestValuesConvert(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for name, of := range map[string]scalar.Type{"code": scalar.String, "seats": scalar.Number} {
			_, err := s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: name, Type: of})
			s.Must(err)
		}
		s.template("both", "x", templates.Declaration{Key: "TEXT", Type: "string"},
			templates.Declaration{Key: "N", Type: "number"})
		rule := func(field, value string) string {
			return `{"type": "rule", "field": "` + field + `", "operator": "eq", "value": ` + value + `}`
		}
		id := s.graph(automations.NewAutomation{}, links("start set", "set if", "if mail condition_met"), trigger("go"),
			step("set", engine.ContactUpdate, `{"properties": {"code": {"var": "event.code"},
				"seats": {"var": "event.seats"}}}`),
			step("if", engine.Condition, `{"type": "and", "rules": [`+strings.Join([]string{
				rule("contact.properties.code", "12345"), rule("contact.properties.code", `{"var": "event.code"}`),
				rule("contact.properties.code", `"12345"`), rule("contact.properties.seats", `"7"`)}, ",")+`]}`),
			step("mail", engine.SendEmail, `{"template": {"id": "both", "variables": {"TEXT": {"var": "event.code"},
				"N": {"var": "event.seats"}}}}`))
		s.happens("go", ann, `{"code": 12345, "seats": "7"}`)
		s.work()
		s.mustRun(id, "completed: start set if mail")
		literal := s.automation(trigger("literal"), step("set", engine.ContactUpdate,
			`{"properties": {"code": 12345, "seats": "7"}}`), step("mail", engine.SendEmail,
			`{"template": {"id": "both", "variables": {"TEXT": 1, "N": "2"}}}`))
		s.happens("literal", ann, "")
		s.work()
		s.mustRun(literal, "completed: start set mail")
	})
}

// Emails of automations fill the fields of the contact, as broadcasts do. A value that an earlier step of the same
// transaction sets counts.
func TestContactFields(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		for _, p := range []contacts.NewProperty{{Name: "plan", Type: scalar.String, Fallback: scalar.OfText("R&D")},
			{Name: "city", Type: scalar.String}, {Name: "company", Type: scalar.String}} {
			_, err := s.Contacts.CreateProperty(ctx, team, p)
			s.Must(err)
		}
		_, _, err := s.Contacts.Upsert(ctx, team, ann, contacts.Change{FirstName: new("Old"), LastName: new("Doe, <Ann>"),
			Properties: map[string]scalar.Value{"city": scalar.OfText(""),
				"company": scalar.OfText("Doe, Inc.")}})
		s.Must(err)
		_, err = s.Templates.Create(ctx, team, templates.NewTemplate{Name: "Fields", Alias: "fields",
			From: "{{{contact.company}}} at Acme <hello@" + testnode.Domain + ">", Subject: "{{{FIRST_NAME}}}",
			HTML: new("<p>{{{FIRST_NAME}}} {{{contact.last_name}}} {{{raw LAST_NAME}}} {{{RESEND_EMAIL}}} {{{contact.plan}}} " +
				"{{{contact.city|nowhere}}} {{{HTML}}} {{{contact.none}}}</p>"),
			Text:      new("{{{LAST_NAME}}} {{{contact.plan|own}}}"),
			Variables: []templates.Declaration{{Key: "HTML", Type: "string"}}})
		s.Must(err)
		_, err = s.Templates.Publish(ctx, team, "fields")
		s.Must(err)
		id := s.automation(trigger("go"), step("rename", engine.ContactUpdate, `{"first_name": "Ann"}`),
			step("own", engine.SendEmail, `{"template": {"id": "fields", "variables": {"HTML": "<b>x</b>"}}}`),
			step("given", engine.SendEmail, `{"template": {"id": "fields", "variables": {"HTML": "", "FIRST_NAME":
				{"var": "event.name"}}}, "subject": "{{{FIRST_NAME}}}: {{{HTML}}}{{{contact.plan}}}{{{NONE|!}}}",
				"from": "\"{{{FIRST_NAME}}}\" <hello@`+testnode.Domain+`>", "reply_to": "{{{LAST_NAME}}} <{{{EMAIL}}}>"}`))
		s.happens("go", ann, `{"name": "Say \"A\" & B"}`)
		s.work()
		s.mustRun(id, "completed: start rename own given")
		sent := s.runs(id)[0].Steps
		own := s.Email(sent[2].Output["email_id"].(string))
		if own.Subject != "Ann" || own.From != `"Doe, Inc. at Acme" <hello@`+testnode.Domain+`>` ||
			*own.HTML != "<p>Ann Doe, &lt;Ann&gt; Doe, <Ann> "+ann+" R&amp;D nowhere <b>x</b> </p>" ||
			*own.Text != "Doe, <Ann> own" {
			t.Errorf("the email is %q, %q, %q, %q", own.From, own.Subject, *own.HTML, *own.Text)
		}
		given := s.Email(sent[3].Output["email_id"].(string))
		if given.Subject != `Say "A" & B: R&D!` || given.From != `"Say \"A\" & B" <hello@`+testnode.Domain+`>` ||
			!slices.Equal(given.ReplyTo, []string{`"Doe, <Ann>" <` + ann + `>`}) ||
			!strings.HasPrefix(*given.HTML, "<p>Say &#34;A&#34; &amp; B Doe, ") {
			t.Errorf("the email is %q, %q, %q, %q", given.From, given.ReplyTo, given.Subject, *given.HTML)
		}
	})
}

func (s *fixture) topic(name string, byDefault contacts.Subscription) string {
	s.T.Helper()
	t, err := s.Contacts.CreateTopic(s.T.Context(), s.Acme.TeamID, contacts.NewTopic{Name: name, Default: byDefault,
		Visibility: contacts.Public})
	s.Must(err)
	return t.ID
}

// If the contact has opted out, the run skips the email and continues. An email to a suppressed address is stored with
// the status suppressed.
func TestRefusedEmails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		topic := s.topic("News", contacts.OptOut)
		id := s.automation(trigger("go"), sends("plain"),
			step("news", engine.SendEmail, `{"template": {"id": "hello"}, "topic_id": "`+topic+`"}`))
		left, _, err := s.Contacts.Upsert(ctx, team, "left@reader.example", contacts.Change{Unsubscribed: new(true)})
		s.Must(err)
		in, _, err := s.Contacts.Upsert(ctx, team, ann, contacts.Change{Topics: []contacts.Choice{{TopicID: topic,
			Subscription: contacts.OptIn}}})
		s.Must(err)
		_, err = s.Suppressions.Add(ctx, team, []string{"dead@reader.example"})
		s.Must(err)
		for _, contact := range []string{left.ID, in.ID, s.contact("dead@reader.example")} {
			s.happens("go", contact, "")
			s.work()
		}
		s.mustRun(id, "completed: start plain=skipped(contact_unsubscribed) news=skipped(contact_unsubscribed)",
			"completed: start plain news", "completed: start plain news=skipped(topic_not_opted_in)")
		if e := s.Email(s.runs(id)[2].Steps[1].Output["email_id"].(string)); e.LastEvent != emails.Suppressed {
			t.Errorf("the email to a suppressed address is %s", e.LastEvent)
		}
	})
}

// A contact that unsubscribes after an email has been prepared does not receive that email.
func TestUnsubscribedMeanwhile(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), sends("mail"))
		contact := s.contact(ann)
		s.happens("go", contact, "")
		s.between(func() {
			_, err := s.Contacts.Update(t.Context(), s.Acme.TeamID, contact, contacts.Change{Unsubscribed: new(true)})
			s.Must(err)
		})
		s.work()
		s.mustRun(id, "completed: start mail=skipped(contact_unsubscribed)")
		if got := s.mailed(ann); len(got) > 0 {
			t.Errorf("the emails are %q", got)
		}
	})
}

// A run waits at its step while its team is suspended.
func TestSuspendedTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		ctx, team := t.Context(), s.Acme.TeamID
		id := s.automation(trigger("go"), sends("mail"), step("call", engine.Webhook, `{"url": "https://acme.example/hook"}`))
		s.Must(s.Teams.SetSuspended(ctx, team, true))
		s.happens("go", ann, "")
		s.work()
		s.mustRun(id, "running: start")
		s.Must(s.Teams.SetSuspended(ctx, team, false))
		s.pass(10 * time.Minute)
		s.work1() // send the email and enqueue the webhook job
		s.Must(s.Teams.SetSuspended(ctx, team, true))
		s.work()
		s.mustRun(id, "running: start mail call=running")
		s.Must(s.Teams.SetSuspended(ctx, team, false))
		s.pass(10 * time.Minute)
		s.work()
		s.mustRun(id, "completed: start mail call")
		if n := s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery'`); n != 1 || len(s.called) != 1 {
			t.Errorf("%d deliveries and %d calls", n, len(s.called))
		}
	})
}

// A run waits at its step while its team's quota is used up.
func TestQuotaUsedUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *fixture) {
		id := s.automation(trigger("go"), sends("mail"), sends("again"))
		quota := func(n int64) {
			s.Must(s.Quotas.Set(t.Context(), s.Teams, s.Acme.TeamID, func(q *teams.Quota) { q.Daily = n }))
		}
		quota(1)
		s.happens("go", ann, "")
		s.work()
		s.mustRun(id, "running: start mail")
		if n := s.Count(`SELECT COUNT(*) FROM emails`); n != 1 {
			t.Errorf("%d emails within a quota of 1", n)
		}
		quota(2)
		s.pass(2 * time.Hour)
		s.work()
		s.mustRun(id, "completed: start mail again")
	})
}
