package emails_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/templates"
)

// stencil is a test node on which the team Acme has a published template with the alias order.
type stencil struct {
	*testnode.Node
	t  *testing.T
	id string
}

func eachStencil(t *testing.T, f func(t *testing.T, s *stencil)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		s := &stencil{n, t, ""}
		s.id = s.published(templates.NewTemplate{Name: "Order", Alias: "order", From: "{{{SHOP}}} <orders@acme.example>",
			Subject: "{{{ITEM}}} is on its way", ReplyTo: []string{"help@acme.example"},
			HTML: new("<p>{{{ITEM}}} for {{{PRICE}}}</p>"), Variables: []templates.Declaration{{Key: "ITEM", Type: "string"},
				{Key: "PRICE", Type: "number", Fallback: scalar.OfNumber(9.5)},
				{Key: "SHOP", Type: "string", Fallback: scalar.OfText("Acme")}, {Key: "UNUSED", Type: "string",
					Fallback: scalar.OfText("nobody sees it")}}})
		f(t, s)
	})
}

func (s *stencil) published(n templates.NewTemplate) string {
	s.t.Helper()
	made, err := s.Templates.Create(s.t.Context(), s.Acme.TeamID, n)
	if err == nil {
		_, err = s.Templates.Publish(s.t.Context(), s.Acme.TeamID, made.ID)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return made.ID
}

// tea returns an email that uses the template order and has only the required fields.
func tea() emails.Send {
	return emails.Send{To: []string{"bob@one.example"}, HasTemplate: true, TemplateID: "order",
		Variables: map[string]scalar.Value{"ITEM": scalar.OfText("Tea")}}
}

func (s *stencil) get(emailID string) emails.Email {
	s.t.Helper()
	e, err := s.Emails.Get(s.t.Context(), s.Acme.TeamID, emailID)
	if err != nil {
		s.t.Fatal(err)
	}
	return e
}

func (s *stencil) composed(emailID string, to ...string) string {
	s.t.Helper()
	o, err := s.Emails.Outgoing(s.t.Context(), emails.Delivery{TeamID: s.Acme.TeamID,
		EmailID: emailID, To: to, First: true})
	if err != nil {
		s.t.Fatal(err)
	}
	if o.ContentMissing {
		s.t.Errorf("the content of email %s is lost", emailID)
	}
	text, err := s.Emails.Compose(s.t.Context(), o)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

func (s *stencil) count(query string, args ...any) (n int) {
	s.t.Helper()
	if err := s.DB.QueryRow(s.t.Context(), query, args...).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func (s *stencil) update(c templates.Change) {
	s.t.Helper()
	if _, err := s.Templates.Update(s.t.Context(), s.Acme.TeamID, s.id, c); err != nil {
		s.t.Fatal(err)
	}
}

// An email with a template is identical to an email whose request contains the same text. The text is stored once for
// all emails with the template.
func TestSendByTemplate(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		seen := &testnode.Seen{}
		s.Recorder.Listen(seen)
		emailID := s.Send(tea())
		e := s.get(emailID)
		if e.From != "Acme <orders@acme.example>" || e.Subject != "Tea is on its way" || len(e.ReplyTo) != 1 ||
			e.ReplyTo[0] != "help@acme.example" || e.HTML == nil || *e.HTML != "<p>Tea for 9.5</p>" || e.Text != nil ||
			e.TemplateID != s.id || e.LastEvent != emails.Queued {
			t.Errorf("the email is %+v", e)
		}
		text := s.composed(emailID, "bob@one.example")
		for _, part := range []string{"From: Acme <orders@acme.example>\r\n", "Subject: Tea is on its way\r\n",
			"Reply-To: help@acme.example\r\n", "<p>Tea for 9.5</p>", "\r\nTea for 9.5\r\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
		for _, v := range seen.Take() {
			if v.EmailID != emailID {
				continue
			}
			if brief, err := v.Email(); err != nil || brief.TemplateID != s.id || brief.Subject != "Tea is on its way" {
				t.Errorf("event %s says %+v, %v", v.Type, brief, err)
			}
		}
		if n := s.count(`SELECT COUNT(*) FROM email_bodies`) + s.count(`SELECT COUNT(*) FROM emails WHERE variables
			LIKE '%nobody sees%'`); n != 0 {
			t.Errorf("%d rows have what nobody needs", n)
		}
		if n := s.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`,
			emails.Lane("one.example", s.Acme.TeamID, false)); n != 1 {
			t.Errorf("%d delivery jobs", n)
		}
	})
}

// Fields in the request replace the template's fields, and all other fields of Send also work with a template.
func TestSendByTemplateWithAllElse(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		in := tea()
		in.TemplateID = strings.ToUpper(s.id)
		in.From, in.Subject, in.ReplyTo = "Own <own@acme.example>", "Own {{{ITEM}}}", []string{"own-reply@acme.example"}
		in.Cc, in.Bcc = []string{"carol@one.example"}, []string{"dave@two.example"}
		in.Tags = []emails.Tag{{Name: "kind", Value: "order"}}
		in.Headers = []message.Field{{Name: "X-Entity-Ref-ID", Value: "1"}, {Name: "Precedence", Value: "bulk"}}
		in.Attachments = []emails.Upload{{Filename: "a.txt", Content: []byte("hello"), HasContent: true}}
		in.Variables["PRICE"] = scalar.OfNumber(12)
		in.Variables["EXTRA"] = scalar.Value{Type: scalar.Other}
		in.ScheduledAt = "in 1 hour"
		emailID := s.Send(in)
		e := s.get(emailID)
		if e.From != in.From || e.Subject != "Own Tea" || e.ReplyTo[0] != "own-reply@acme.example" ||
			*e.HTML != "<p>Tea for 12</p>" || len(e.Cc) != 1 || len(e.Bcc) != 1 || len(e.Tags) != 1 ||
			e.LastEvent != emails.Scheduled || e.TemplateID != s.id {
			t.Errorf("the email is %+v", e)
		}
		// Changes to the template before the scheduled time do not affect the email.
		s.update(templates.Change{HTML: new("<p>changed</p>")})
		if _, err := s.Templates.Publish(t.Context(), s.Acme.TeamID, s.id); err != nil {
			t.Fatal(err)
		}
		text := s.composed(emailID, "bob@one.example")
		for _, part := range []string{"From: Own <own@acme.example>\r\n", "Subject: Own Tea\r\n",
			"X-Entity-Ref-ID: 1\r\n", "Precedence: bulk\r\n", "<p>Tea for 12</p>", "aGVsbG8=", "Cc: carol@one.example\r\n"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q is not in\n%s", part, text)
			}
		}
		if n := s.count(`SELECT COUNT(*) FROM email_bodies WHERE html <> '' OR body_text <> ''`); n != 0 {
			t.Error("the text was stored once more")
		}
		if err := s.Emails.Reschedule(t.Context(), s.Acme.TeamID, emailID, "in 2 hours"); err != nil {
			t.Fatal(err)
		}
		size, err := s.Emails.Size(t.Context(), s.Acme.TeamID, emailID)
		if err != nil || size < int64(2*len("<p>Tea for 12</p>")) {
			t.Errorf("composing it is said to take %d bytes, %v", size, err)
		}
	})
}

// Emails in a batch may use templates. Each email in a batch has its own values, and an error names the email's index
// and the variable.
func TestBatchByTemplate(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		var all []emails.Send
		for i := range 5 {
			one := tea()
			one.Variables = map[string]scalar.Value{"ITEM": scalar.OfText(fmt.Sprint("item ", i))}
			all = append(all, one)
		}
		all[3].Variables = nil
		_, err := s.Emails.SendBatch(t.Context(), s.Acme, all, false, emails.Idempotency{})
		if e, ok := err.(*fault.Error); !ok || e.Field != "[3].template.variables.ITEM" {
			t.Errorf("a strict batch: %v", err)
		}
		b, err := s.Emails.SendBatch(t.Context(), s.Acme, all, true, emails.Idempotency{})
		if err != nil || len(b.IDs) != 4 || len(b.Errors) != 1 || b.Errors[0].Index != 3 ||
			!strings.Contains(b.Errors[0].Message, "`template.variables.ITEM`") {
			t.Fatalf("a permissive batch: %+v, %v", b, err)
		}
		if e := s.get(b.IDs[3]); *e.HTML != "<p>item 4 for 9.5</p>" {
			t.Errorf("the last says %s", *e.HTML)
		}
		if n := s.count(`SELECT COUNT(*) FROM contents`); n != 1 {
			t.Errorf("%d contents", n)
		}
	})
}

// If the same request is repeated with the same idempotency key, Send returns the id of the first email. A request with
// different variables counts as a different payload.
func TestTemplateWithIdempotencyKey(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		send := func(in emails.Send) (string, error) {
			return s.Emails.Send(t.Context(), s.Acme, in, emails.Idempotency{Scope: "POST /emails", Key: "k",
				Hash: emails.Digest("", in)})
		}
		first, err := send(tea())
		if err != nil {
			t.Fatal(err)
		}
		if again, err := send(tea()); err != nil || again != first {
			t.Errorf("again: %s, %v", again, err)
		}
		for what, v := range map[string]scalar.Value{"another text": scalar.OfText("Coffee"),
			"another type": scalar.OfNumber(1)} {
			other := tea()
			other.Variables["ITEM"] = v
			if _, err := send(other); fault.KindOf(err) != fault.IdempotencyMismatch {
				t.Errorf("%s: %v", what, err)
			}
		}
		if emails.Digest("", emails.Send{HasTemplate: true}) == emails.Digest("", emails.Send{HasTemplate: true,
			Variables: map[string]scalar.Value{"": {}}}) {
			t.Error("a variable does not count")
		}
	})
}

// An email with a template keeps the text that was sent, even if the template is later changed or deleted.
func TestEmailOutlivesItsTemplate(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		ctx := t.Context()
		emailID := s.Send(tea())
		unused := s.published(templates.NewTemplate{Name: "x", Alias: "x", HTML: new("<p>nobody sent it</p>")})
		for _, templateID := range []string{s.id, unused} {
			if _, err := s.Templates.Delete(ctx, s.Acme.TeamID, templateID); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Emails.Send(ctx, s.Acme, tea(), emails.Idempotency{}); fault.KindOf(err) != fault.NotFound ||
			err.Error() != "Template not found" {
			t.Errorf("by a deleted template: %v", err)
		}
		if err := s.Templates.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		sweep := func() {
			t.Helper()
			if err := s.Emails.SweepContents(ctx); err != nil {
				t.Fatal(err)
			}
		}
		old := func() { // makes shared content look unused for a day, without changing the age of emails
			s.change(`UPDATE contents SET used_at = used_at - 86400000000`)
		}
		s.change(`UPDATE contents SET used_at = used_at - 86400000000 WHERE html LIKE '%nobody%'`)
		sweep()
		if n := s.count(`SELECT COUNT(*) FROM contents`); n != 1 {
			t.Errorf("%d contents are left of two", n)
		}
		if e := s.get(emailID); *e.HTML != "<p>Tea for 9.5</p>" || e.TemplateID != s.id {
			t.Errorf("the email shows %+v", e)
		}
		if text := s.composed(emailID, "bob@one.example"); !strings.Contains(text, "<p>Tea for 9.5</p>") {
			t.Errorf("it is sent as\n%s", text)
		}
		s.Happen(events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, DomainID: s.Sender.ID, Type: events.EmailDelivered,
			Recipient: "bob@one.example"})
		if err := s.Emails.DeleteContent(ctx, s.Acme.TeamID, emailID); err != nil {
			t.Fatal(err)
		}
		if e := s.get(emailID); e.HTML != nil {
			t.Errorf("deleted, its content is %q", *e.HTML)
		}
		old()
		sweep()
		if n := s.count(`SELECT COUNT(*) FROM contents`); n != 0 {
			t.Errorf("%d contents are left for no email", n)
		}
	})
}

func (s *stencil) change(query string) {
	s.t.Helper()
	s.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(s.t.Context(), query)
		return err
	})
}

// If an email with a template breaks a rule, the error names the field, and no email is accepted.
func TestTemplateRules(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		draft, err := s.Templates.Create(t.Context(), s.Acme.TeamID, templates.NewTemplate{Name: "Draft", HTML: new("<p>")})
		if err != nil {
			t.Fatal(err)
		}
		s.published(templates.NewTemplate{Name: "Bare", Alias: "bare", HTML: new("<p>")})
		s.published(templates.NewTemplate{Name: "All", Alias: "all", From: "a@acme.example", Subject: "s",
			HTML: new("{{{ITEM}}}"), Variables: []templates.Declaration{{Key: "ITEM", Type: "string"}}})
		text := func(n int) scalar.Value { return scalar.OfText(strings.Repeat("é", n)) }
		for _, c := range []struct {
			name string
			set  func(*emails.Send)
			kind fault.Kind
			says string
		}{
			{"unknown", func(e *emails.Send) { e.TemplateID = "unknown" }, fault.NotFound, "Template not found"},
			{"unknown id", func(e *emails.Send) { e.TemplateID = "0199aaaa-0000-7000-8000-000000000000" }, fault.NotFound,
				"Template not found"},
			{"neither", func(e *emails.Send) { e.TemplateID = "a b\x00" }, fault.NotFound, "Template not found"},
			{"a draft", func(e *emails.Send) { e.TemplateID = draft.ID }, fault.Invalid, "`template.id`"},
			{"no id", func(e *emails.Send) { e.TemplateID = "" }, fault.Missing, "`template.id`"},
			{"HTML too", func(e *emails.Send) { e.HTML = new("<p>") }, fault.Invalid, "`template`"},
			{"text too", func(e *emails.Send) { e.Text = new("") }, fault.Invalid, "`template`"},
			{"no to", func(e *emails.Send) { e.To = nil }, fault.Missing, "`to`"},
			{"no from", func(e *emails.Send) { e.TemplateID, e.Subject = "bare", "s" }, fault.Missing, "`from`"},
			{"no subject", func(e *emails.Send) { e.TemplateID, e.From = "bare", "a@acme.example" }, fault.Missing,
				"`subject`"},
			{"another domain", func(e *emails.Send) { e.From = "a@other.example" }, fault.Forbidden, "`from`"},
			{"no variable", func(e *emails.Send) { e.Variables = nil }, fault.Invalid, "`template.variables.ITEM`"},
			{"a number for a text", func(e *emails.Send) { e.Variables["ITEM"] = scalar.OfNumber(1) }, fault.Invalid,
				"`template.variables.ITEM` field must be a string"},
			{"a text for a number", func(e *emails.Send) { e.Variables["PRICE"] = scalar.OfText("1") }, fault.Invalid,
				"`template.variables.PRICE` field must be a number"},
			{"something else", func(e *emails.Send) { e.Variables["ITEM"] = scalar.Value{Type: scalar.Other} },
				fault.Invalid, "`template.variables.ITEM`"},
			{"a long text", func(e *emails.Send) { e.Variables["ITEM"] = text(2001) }, fault.Invalid,
				"`template.variables.ITEM` field has 2001 characters"},
			{"100 KB", func(e *emails.Send) { e.Variables["ITEM"] = text(50_000) }, fault.Invalid,
				"`template.variables.ITEM`"},
			{"a large number", func(e *emails.Send) { e.Variables["PRICE"] = scalar.OfNumber(1 << 60) }, fault.Invalid,
				"`template.variables.PRICE`"},
			{"a reserved name", func(e *emails.Send) { e.Variables["EMAIL"] = scalar.OfText("a@b.example") },
				fault.Invalid, "`template.variables.EMAIL`"},
			{"contact", func(e *emails.Send) { e.Variables["contact"] = scalar.OfText("x") }, fault.Invalid,
				"`template.variables.contact`"},
			{"a value that breaks the sender", func(e *emails.Send) {
				e.Variables["SHOP"] = scalar.OfText("<x@y.example>,")
			}, fault.Invalid, "`from`"},
			{"a value that makes the subject too long", func(e *emails.Send) { e.Variables["ITEM"] = text(500) },
				fault.Invalid, "`subject`"},
			{"no HTML is left", func(e *emails.Send) {
				e.TemplateID, e.Variables["ITEM"] = "all", scalar.OfText("")
			}, fault.Missing, "`html`"},
			{"a subject of its own for one that would be too long", func(e *emails.Send) {
				e.Variables["ITEM"], e.Subject = text(500), "s"
			}, 0, ""},
			{"the longest subject", func(e *emails.Send) { e.Variables["ITEM"] = text(490) }, 0, ""},
			{"no line of a header begins in a value", func(e *emails.Send) {
				e.Variables["ITEM"] = scalar.OfText("x\r\nBcc: y@z.example")
			}, 0, ""},
		} {
			before := s.count(`SELECT COUNT(*) FROM emails`)
			in := tea()
			c.set(&in)
			emailID, err := s.Emails.Send(t.Context(), s.Acme, in, emails.Idempotency{})
			if c.says == "" {
				if err != nil {
					t.Errorf("%s: %v", c.name, err)
				} else if head, _, _ := strings.Cut(s.composed(emailID, "bob@one.example"), "\r\n\r\n"); strings.Contains(head,
					"\nBcc:") {
					t.Errorf("%s: a value began a field:\n%s", c.name, head)
				}
				continue
			}
			if err == nil || fault.KindOf(err) != c.kind || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s: %v", c.name, err)
			}
			if n := s.count(`SELECT COUNT(*) FROM emails`); n != before {
				t.Errorf("%s: an email was accepted", c.name)
			}
		}
	})
}

// One row less is written to accept an email with a template than to accept an email with a body in the request.
func TestSendByTemplateWritesLess(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		s := &stencil{n, t, ""}
		s.id = s.published(templates.NewTemplate{Name: "x", Alias: "x", From: "a@acme.example", Subject: "s",
			HTML: new("<p>{{{A}}}</p>"), Variables: []templates.Declaration{{Key: "A", Type: "string"}}})
		in := emails.Send{To: []string{"b@one.example"}, HasTemplate: true, TemplateID: "x",
			Variables: map[string]scalar.Value{"A": scalar.OfText("x")}}
		own := emails.Send{From: "a@acme.example", To: in.To, Subject: "s", HTML: new("<p>x</p>")}
		s.Send(in) // fills the caches
		s.Send(own)
		rows := func() int {
			total := 0
			for _, table := range []string{"emails", "email_bodies", "email_recipients", "email_events", "jobs", "contents"} {
				total += s.count(`SELECT COUNT(*) FROM ` + table)
			}
			return total
		}
		before := rows()
		s.Send(own)
		middle := rows()
		s.Send(in)
		if by, with := rows()-middle, middle-before; by != with-1 {
			t.Errorf("an email by template writes %d rows, one with a body %d", by, with)
		}
	})
}

func BenchmarkSendByTemplate(b *testing.B) {
	html := "<p>{{{A}}}</p>" + strings.Repeat("<p>some text of a newsletter, line by line</p>\n", 1300) // 60 KB
	for _, name := range []string{"template", "body"} {
		b.Run(name, func(b *testing.B) {
			n := testnode.New(b, dbtest.SQLite(b), testnode.Options{})
			made, err := n.Templates.Create(b.Context(), n.Acme.TeamID, templates.NewTemplate{Name: "x", Alias: "x",
				From: "a@acme.example", Subject: "s", HTML: &html, Variables: []templates.Declaration{{Key: "A", Type: "string"}}})
			if err == nil {
				_, err = n.Templates.Publish(b.Context(), n.Acme.TeamID, made.ID)
			}
			if err != nil {
				b.Fatal(err)
			}
			in := emails.Send{To: []string{"b@one.example"}, HasTemplate: true, TemplateID: "x",
				Variables: map[string]scalar.Value{"A": scalar.OfText("x")}}
			if name == "body" {
				in = emails.Send{From: "a@acme.example", To: in.To, Subject: "s", HTML: &html}
			}
			for b.Loop() {
				n.Send(in)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "emails/s")
		})
	}
}

// The sender, the subject and the reply-to addresses in a request are filled from the template's variables. Without a
// template, braces are ordinary text.
func TestOverridesAreFilled(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		in := tea()
		in.Variables["SHOP"] = scalar.OfText(`Tea, "Inc"`)
		in.From, in.Subject = "{{{SHOP}}} via Acme <orders@acme.example>", "{{{ITEM}}} {{{PRICE}}} {{{NONE|x}}}{{{EMAIL}}}{"
		in.ReplyTo = []string{"{{{SHOP}}} <help@acme.example>", "plain@acme.example"}
		e := s.get(s.Send(in))
		if e.From != `"Tea, \"Inc\" via Acme" <orders@acme.example>` || e.Subject != "Tea 9.5 x{" ||
			!slices.Equal(e.ReplyTo, []string{`"Tea, \"Inc\"" <help@acme.example>`, "plain@acme.example"}) {
			t.Errorf("the email is %q, %q, %q", e.From, e.Subject, e.ReplyTo)
		}
		in.Variables["SHOP"] = scalar.OfText("")
		if e := s.get(s.Send(in)); e.From != "via Acme <orders@acme.example>" {
			t.Errorf("an empty value is a value, but the sender is %q", e.From)
		}
		for text, want := range map[string]string{
			"{{{NONE}}}": "The `subject` field uses the variable NONE, which the template does not declare. Declare it there, " +
				"correct its name, or write {{{NONE|fallback}}}.",
			"{{{ITEM": "The `subject` field has a placeholder that is not well formed: line 1, column 1: the placeholder that " +
				"begins with \"{{{ITEM\" is not closed by }}}. Write {{{NAME}}} or {{{NAME|fallback}}}.",
		} {
			in.Subject = text
			if _, err := s.Emails.Send(t.Context(), s.Acme, in, emails.Idempotency{}); err == nil || err.Error() != want {
				t.Errorf("%s: %v", text, err)
			}
		}
		plain := emails.Send{From: "Acme <orders@acme.example>", To: []string{"bob@one.example"}, Text: new("x"),
			Subject: "{{{ITEM}}} {{{"}
		if e := s.get(s.Send(plain)); e.Subject != plain.Subject {
			t.Errorf("without a template, the subject is %q", e.Subject)
		}
	})
}
