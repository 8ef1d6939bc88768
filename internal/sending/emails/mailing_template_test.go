package emails_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// automated prepares an email from a template and enqueues it for a contact, as a step in an automation does.
func (s *stencil) automated(contactID string, in emails.ByTemplate) emails.EnqueueResult {
	s.t.Helper()
	ctx := s.t.Context()
	m, err := s.Emails.MailingByTemplate(ctx, s.Acme, in)
	s.Must(err)
	var entered []emails.EnqueueResult
	s.Must(s.DB.Update(ctx, func(tx *db.Tx) error {
		now, err := s.Contacts.AudienceMembers(ctx, tx.Reader, s.Acme.TeamID, in.TopicID, []string{contactID})
		if err != nil {
			return err
		}
		to := emails.MailingRecipient{Address: now[contactID].Address, ContactID: contactID, Refused: now[contactID].Refused}
		entered, err = s.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{to})
		return err
	}))
	return entered[0]
}

func (s *stencil) contact(address string) contacts.Contact {
	s.t.Helper()
	c, _, err := s.Contacts.Upsert(s.t.Context(), s.Acme.TeamID, address, contacts.Change{})
	s.Must(err)
	return c
}

// An email from an automation has unsubscribe links. A contact that has unsubscribed receives no more emails from
// automations.
func TestEmailOfAnAutomation(t *testing.T) {
	t.Parallel()
	eachStencil(t, func(t *testing.T, s *stencil) {
		ctx := t.Context()
		s.published(templates.NewTemplate{Name: "Hello", Alias: "hello", From: "Acme <hello@acme.example>",
			Subject: "Hello {{{NAME}}}", HTML: new(`<p>{{{NAME}}}</p><a href="{{{UNSUBSCRIBE_URL}}}">Leave</a>`),
			Variables: []templates.Declaration{{Key: "NAME", Type: "string"}}})
		rita := s.contact("rita@one.example")
		hello := emails.ByTemplate{TemplateID: "hello", To: rita.Address,
			Variables: map[string]scalar.Value{"NAME": scalar.OfText("Rita")}}
		first := s.automated(rita.ID, hello)
		waiting := s.automated(rita.ID, hello)
		if first.Err != nil || waiting.Err != nil {
			t.Fatal(first, waiting)
		}
		e := s.get(first.ID)
		if e.From != "Acme <hello@acme.example>" || e.Subject != "Hello Rita" || e.ContactID != rita.ID ||
			e.TemplateID == "" || e.BroadcastID != "" || !strings.Contains(*e.HTML, `"{{{POSTRIDER_UNSUBSCRIBE_URL}}}"`) {
			t.Errorf("%+v, %s", e, *e.HTML)
		}
		text := strings.ReplaceAll(s.composed(first.ID, rita.Address), "=\r\n", "")
		_, after, _ := strings.Cut(text, "\r\nList-Unsubscribe: <")
		link, _, _ := strings.Cut(after, ">")
		link = strings.ReplaceAll(link, "\r\n ", "")
		if n := strings.Count(text, link); !strings.Contains(link, "/unsubscribe/") || n != 3 {
			t.Fatalf("the link %q stands %d times, not in the header, the HTML and the text: %s", link, n, text)
		}
		if !strings.Contains(text, "List-Unsubscribe-Post: List-Unsubscribe=One-Click") {
			t.Errorf("one click does not do: %s", text)
		}
		if n := s.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`,
			emails.Lane("one.example", s.Acme.TeamID, false)); n != 2 {
			t.Errorf("%d deliveries are not behind others, want 2", n)
		}
		preview, err := s.Emails.PreviewSent(ctx, s.Acme.TeamID, first.ID)
		if err != nil || !strings.Contains(preview.HTML, s.Emails.ExampleUnsubscribeURL()) {
			t.Errorf("%+v, %v", preview, err)
		}

		l, err := s.Contacts.ReadToken(link[strings.LastIndexByte(link, '/')+1:])
		s.Must(err)
		if l.ContactID != rita.ID || l.EmailID != first.ID {
			t.Errorf("the link is %+v", l)
		}
		_, _, err = s.Contacts.Unsubscribe(ctx, l)
		s.Must(err)
		o, err := s.Emails.Outgoing(ctx, emails.Delivery{TeamID: s.Acme.TeamID,
			EmailID: waiting.ID, To: []string{rita.Address}, First: true})
		s.Must(err)
		skipped, err := s.Emails.DropSuppressed(ctx, o)
		if err != nil || len(o.To) != 0 || len(skipped) != 1 ||
			skipped[0].Data.(*events.Failed).Reason != string(contacts.Unsubscribed) {
			t.Errorf("one that waited goes to %v, %+v, %v", o.To, skipped, err)
		}
		if later := s.get(s.automated(rita.ID, hello).ID); later.LastEvent != emails.Failed {
			t.Errorf("a later one is %s", later.LastEvent)
		}
		direct := tea()
		direct.To = []string{rita.Address}
		if other := s.get(s.Send(direct)); other.LastEvent != emails.Queued {
			t.Errorf("an email of the team's own is %s", other.LastEvent)
		}
	})
}

// If an automation step has a sender, a subject or reply-to addresses, they replace those of the template.
func TestMailingByTemplateReplaces(t *testing.T) {
	t.Parallel()
	eachStencil(t, func(t *testing.T, s *stencil) {
		ctx := t.Context()
		topic, err := s.Contacts.CreateTopic(ctx, s.Acme.TeamID, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		s.Must(err)
		rita := s.contact("rita@one.example")
		in := emails.ByTemplate{TemplateID: "order", To: rita.Address, Variables: tea().Variables, TopicID: topic.ID,
			Tags: []emails.Tag{{Name: "step", Value: "first"}}, From: "Rob <rob@acme.example>", Subject: "Own {{{ITEM}}}",
			ReplyTo: []string{"rob@elsewhere.example"}}
		entered := s.automated(rita.ID, in)
		if entered.Err != nil {
			t.Fatal(entered.Err)
		}
		e := s.get(entered.ID)
		if e.From != in.From || e.Subject != "Own Tea" || !slices.Equal(e.ReplyTo, in.ReplyTo) || e.TopicID != topic.ID ||
			!slices.Equal(e.Tags, in.Tags) || *e.HTML != "<p>Tea for 9.5</p>" {
			t.Errorf("%+v", e)
		}
		text := s.composed(entered.ID, rita.Address)
		for _, want := range []string{"From: Rob <rob@acme.example>\r\n", "Subject: Own Tea\r\n",
			"Reply-To: rob@elsewhere.example\r\n", "<p>Tea for 9.5</p>"} {
			if !strings.Contains(text, want) {
				t.Errorf("the message has no %q: %s", want, text)
			}
		}
		if n := s.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`,
			emails.Lane("one.example", s.Acme.TeamID, true)); n != 1 {
			t.Errorf("%d deliveries about a topic are behind others, want 1", n)
		}
	})
}

func TestMailingByTemplateRefuses(t *testing.T) {
	t.Parallel()
	eachStencil(t, func(t *testing.T, s *stencil) {
		for name, c := range map[string]struct {
			change func(*emails.ByTemplate)
			kind   fault.Kind
			field  string
		}{
			"no such template": {func(in *emails.ByTemplate) { in.TemplateID = id.New() }, fault.NotFound, ""},
			"a missing variable": {func(in *emails.ByTemplate) { in.Variables = nil }, fault.Invalid,
				"template.variables.ITEM"},
			"no mailbox":           {func(in *emails.ByTemplate) { in.From = "Rob" }, fault.Invalid, "from"},
			"a foreign sender":     {func(in *emails.ByTemplate) { in.From = "a@elsewhere.example" }, fault.Forbidden, "from"},
			"a broken subject":     {func(in *emails.ByTemplate) { in.Subject = "a\nb" }, fault.Invalid, "subject"},
			"a bad reply_to":       {func(in *emails.ByTemplate) { in.ReplyTo = []string{"nobody"} }, fault.Invalid, "reply_to"},
			"an address of nobody": {func(in *emails.ByTemplate) { in.To = "a@example.com" }, fault.Invalid, "to"},
			"an unknown topic":     {func(in *emails.ByTemplate) { in.TopicID = id.New() }, fault.Invalid, "topic_id"},
			"a tag with spaces": {func(in *emails.ByTemplate) { in.Tags = []emails.Tag{{Name: "a b", Value: "c"}} },
				fault.Invalid, "tags[0].name"},
		} {
			in := emails.ByTemplate{TemplateID: "order", To: "rita@one.example", Variables: tea().Variables}
			c.change(&in)
			_, err := s.Emails.MailingByTemplate(t.Context(), s.Acme, in)
			f, ok := err.(*fault.Error)
			if !ok || f.Kind != c.kind || f.Field != c.field {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
