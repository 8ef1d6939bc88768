package emails_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/templates"
)

// fullEmail returns an email with all parts that a preview includes.
func fullEmail() emails.Send {
	e := testnode.Hello("ann@one.example")
	html := `<p>Hello <img src="cid:logo">, read <a href="https://acme.example/x">this</a>.</p>`
	e.HTML, e.Text, e.ReplyTo = &html, nil, []string{"help@acme.example"}
	e.Headers = []message.Field{{Name: "Precedence", Value: "bulk"}}
	e.Attachments = []emails.Upload{{Filename: "logo.png", ContentID: "logo", Content: []byte("x"), HasContent: true},
		{Filename: "a.txt", Content: []byte("a"), HasContent: true}}
	return e
}

// The preview of a draft is identical to the preview of the same email after it is sent, and previewing the draft
// stores no email.
func TestPreview(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		empty, html := "", "<p>x</p>"
		for name, change := range map[string]func(*emails.Send){
			"all":                func(*emails.Send) {},
			"no text":            func(e *emails.Send) { e.Text = &empty },
			"text":               func(e *emails.Send) { e.HTML, e.Text, e.Headers = nil, &html, nil },
			"both":               func(e *emails.Send) { e.HTML, e.Text = &html, &html },
			"empty and HTML":     func(e *emails.Send) { e.HTML, e.Attachments = &html, nil },
			"scheduled":          func(e *emails.Send) { e.ScheduledAt = "in 1 hour" },
			"an international x": func(e *emails.Send) { e.From = "Ünal <x@acme.example>" },
		} {
			e := fullEmail()
			change(&e)
			draft, err := n.Emails.PreviewDraft(t.Context(), n.Acme.TeamID, e)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			sent, err := n.Emails.PreviewSent(t.Context(), n.Acme.TeamID, n.Send(e))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if diff := gocmp.Diff(draft, sent); diff != "" {
				t.Errorf("%s: draft -, sent +: %s", name, diff)
			}
			if e.HTML == nil != (draft.HTML == "") || name == "no text" != (draft.Text == "") ||
				draft.Bulk != (len(e.Headers) > 0) || draft.Subject != e.Subject {
				t.Errorf("%s: %+v", name, draft)
			}
		}
	})
}

func TestPreviewStoresNothing(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		if _, err := n.Emails.PreviewDraft(t.Context(), n.Acme.TeamID, fullEmail()); err != nil {
			t.Fatal(err)
		}
		for _, table := range []string{"emails", "email_bodies", "email_attachments", "email_events", "jobs"} {
			var rows int
			if err := n.DB.QueryRow(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&rows); err != nil || rows != 0 {
				t.Errorf("%s has %d rows, %v", table, rows, err)
			}
		}
	})
}

// The rules of Send apply to the preview of a draft, except that recipients and the subject may be missing.
func TestPreviewOfWrongDrafts(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, dbtest.SQLite(t), testnode.Options{})
	for field, change := range map[string]func(*emails.Send){
		"from":                    func(e *emails.Send) { e.From = "" },
		"from ":                   func(e *emails.Send) { e.From = "nobody" },
		"to":                      func(e *emails.Send) { e.To = []string{"a@example.com"} },
		"reply_to":                func(e *emails.Send) { e.ReplyTo = []string{"x"} },
		"html":                    func(e *emails.Send) { e.HTML = nil },
		"headers":                 func(e *emails.Send) { e.Headers[0].Value = "a\nb" },
		"subject":                 func(e *emails.Send) { e.Subject = "a\nb" },
		"tags[0].name":            func(e *emails.Send) { e.Tags = []emails.Tag{{Value: "x"}} },
		"attachments[0].filename": func(e *emails.Send) { e.Attachments[0].Filename = "x.exe" },
		"attachments":             func(e *emails.Send) { e.Attachments[0].Content = make([]byte, 1<<20) },
		"scheduled_at":            func(e *emails.Send) { e.ScheduledAt = "some day" },
		"tags":                    func(e *emails.Send) { e.Broken = fault.Invalidf("tags", "They are broken.") },
	} {
		e := fullEmail()
		change(&e)
		_, err := n.Emails.PreviewDraft(t.Context(), n.Acme.TeamID, e)
		_, sent := n.Emails.Send(t.Context(), n.Acme, e, emails.Idempotency{})
		f, ok := errors.AsType[*fault.Error](err)
		if !ok || f.Field != strings.TrimSpace(field) || sent == nil || sent.Error() != err.Error() {
			t.Errorf("%s: %v; sent: %v", field, err, sent)
		}
	}
	e := fullEmail()
	e.To, e.Subject = nil, ""
	if p, err := n.Emails.PreviewDraft(t.Context(), n.Acme.TeamID, e); err != nil || p.Subject != "" {
		t.Errorf("without recipients and subject: %+v, %v", p, err)
	}
}

// The preview of an email with shared content contains the email's own values. The preview of a raw message contains
// only the parts of that message.
func TestPreviewOfOtherEmails(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		ctx, team := t.Context(), n.Acme.TeamID
		html := `<p>Dear {{{NAME|reader}}}, <a href="https://acme.example/{{{CODE}}}">read this</a>.</p>`
		c := content.Content{TeamID: team, From: "news@acme.example", Subject: "News for {{{NAME|you}}}", HTML: &html,
			Headers: []message.Field{{Name: "X-Campaign", Value: "spring {{{CODE}}}"}}}
		n.Update(func(tx *db.Tx) error { return n.Contents.Add(ctx, tx, &c) })
		m, err := n.Emails.Mailing(ctx, n.Acme, c.ID, true)
		if err != nil {
			t.Fatal(err)
		}
		m.BroadcastID = dbtest.ID("broadcast")
		var entered []emails.EnqueueResult
		n.Update(func(tx *db.Tx) (err error) {
			entered, err = n.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: "ann@one.example",
				Values: render.Values{"NAME": "Ann", "CODE": "a1"}}})
			return err
		})
		p, err := n.Emails.PreviewSent(ctx, team, entered[0].ID)
		if err != nil || p.Subject != "News for Ann" || !strings.Contains(p.HTML, "https://acme.example/a1") ||
			!strings.Contains(p.Text, "Dear Ann") || !p.Bulk || len(p.Headers) != 4 || p.Headers[0].Value != "spring a1" ||
			p.Headers[2].Value != "<"+n.Emails.ExampleUnsubscribeURL()+">" {
			t.Errorf("of a broadcast: %+v, %v", p, err)
		}
		for name, given := range map[string]*string{"HTML": &html, "nothing": nil} {
			sent, err := n.Emails.SendRaw(ctx, n.Acme, emails.Raw{Send: emails.Send{From: "hello@acme.example", HTML: given},
				Recipients: []message.Address{{Local: "a", Domain: "one.example"}}, Header: []byte("From: hello@acme.example\r\n"),
				Body: []byte("\r\nHello.\r\n"), Trace: "by mx.test with ESMTPSA"}, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			if p, err = n.Emails.PreviewSent(ctx, team, sent); err != nil || p.Text != "" || p.HTML == "" != (given == nil) {
				t.Errorf("a message with %s: %+v, %v", name, p, err)
			}
		}
		if _, err := n.Emails.PreviewSent(ctx, n.Other.TeamID, entered[0].ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("to another team: %v", err)
		}
	})
}

// An email whose content was deleted has no preview.
func TestPreviewOfWhatIsGone(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		ctx, team := t.Context(), n.Acme.TeamID
		sent := n.Send(fullEmail())
		n.Happen(events.Event{TeamID: team, EmailID: sent, Type: events.EmailDelivered, Recipient: "ann@one.example"})
		if _, err := n.Emails.RemoveBodies(ctx, team, time.Now().Add(time.Hour), ""); err != nil {
			t.Fatal(err)
		}
		if p, err := n.Emails.PreviewSent(ctx, team, sent); fault.KindOf(err) != fault.NotFound ||
			!strings.Contains(err.Error(), "not kept any more") {
			t.Errorf("%+v, %v", p, err)
		}
	})
}

// If a database statement fails, PreviewSent returns an error.
func TestPreviewWithoutAStatement(t *testing.T) {
	t.Parallel()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		sent := n.Send(fullEmail())
		failed := trace.EachBroken(t, nil, func() error {
			_, err := n.Emails.PreviewSent(t.Context(), n.Acme.TeamID, sent)
			return err
		}, nil)
		if failed < 3 {
			t.Errorf("%d statements failed", failed)
		}
	})
}

// A preview contains an example URL instead of the unsubscribe link. Get returns the email with the placeholder still
// in it.
func TestPreviewOfATopic(t *testing.T) {
	t.Parallel()
	eachStencil(t, func(t *testing.T, s *stencil) {
		ctx, team := t.Context(), s.Acme.TeamID
		topic, err := s.Contacts.CreateTopic(ctx, team, contacts.NewTopic{Name: "n", Default: contacts.OptIn})
		if err != nil {
			t.Fatal(err)
		}
		const html = `<a href="{{{UNSUBSCRIBE_URL}}}">leave</a>`
		s.published(templates.NewTemplate{Name: "t", Alias: "leave", From: "a@acme.example", Subject: "s", HTML: new(html)})
		example := s.Emails.ExampleUnsubscribeURL()
		own := testnode.Hello("ann@one.example")
		own.HTML, own.Text, own.TopicID = new(html), nil, topic.ID
		by := tea()
		by.TemplateID, by.Variables, by.TopicID = "leave", nil, topic.ID
		for what, in := range map[string]emails.Send{"a body of its own": own, "a template": by} {
			sentID := s.Send(in)
			draft, err := s.Emails.PreviewDraft(ctx, team, in)
			if err != nil {
				t.Fatal(err)
			}
			sent, err := s.Emails.PreviewSent(ctx, team, sentID)
			if err != nil {
				t.Fatal(err)
			}
			if diff := gocmp.Diff(draft, sent); diff != "" {
				t.Errorf("%s: draft -, sent +: %s", what, diff)
			}
			if draft.HTML != `<a href="`+example+`">leave</a>` || !strings.Contains(draft.Text, example) || !draft.Bulk {
				t.Errorf("%s: %+v", what, draft)
			}
			if e := s.get(sentID); !strings.Contains(*e.HTML, "UNSUBSCRIBE_URL}}}") {
				t.Errorf("%s: the email shows %s", what, *e.HTML)
			}
		}
		for what, id := range map[string]string{"unknown": id.New(), "no id": "news"} {
			in := own
			in.TopicID = id
			_, want := s.Emails.Send(ctx, s.Acme, in, emails.Idempotency{})
			if _, err := s.Emails.PreviewDraft(ctx, team, in); want == nil || err == nil || err.Error() != want.Error() {
				t.Errorf("a topic that is %s: %v; sent: %v", what, err, want)
			}
		}
		r, err := s.Templates.Render(ctx, team, "leave", templates.RenderOptions{UnsubscribeURL: example})
		if err != nil || r.HTML != `<a href="`+example+`">leave</a>` {
			t.Errorf("rendered %+v, %v", r, err)
		}
	})
}
