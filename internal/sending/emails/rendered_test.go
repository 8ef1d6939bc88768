package emails_test

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/templates"
)

// Templates.Render returns exactly the text that is sent, even if the template escapes a value.
func TestRenderedAsSent(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		s.published(templates.NewTemplate{Name: "e", Alias: "e", From: "{{{escape A}}} <a@acme.example>",
			Subject: "{{{escape A}}}", HTML: new("<p>{{{escape A}}} {{{A}}}</p>"),
			Variables: []templates.Declaration{{Key: "A", Type: "string"}}})
		in := tea()
		in.TemplateID, in.Variables = "e", map[string]scalar.Value{"A": scalar.OfText("Tom & 'Al'")}
		emailID := s.Send(in)
		sent := s.get(emailID)
		r, err := s.Templates.Render(t.Context(), s.Acme.TeamID, "e", templates.RenderOptions{Variables: in.Variables})
		if err != nil || r.HTML != *sent.HTML || r.From != sent.From || r.Subject != sent.Subject ||
			!strings.Contains(r.HTML, "Tom &amp; &#39;Al&#39; Tom & 'Al'") {
			t.Errorf("rendered %+v, sent %+v, %v", r, sent, err)
		}
		if p, err := s.Emails.PreviewSent(t.Context(), s.Acme.TeamID, emailID); err != nil || p.Text != r.Text {
			t.Errorf("rendered %q, sent %q, %v", r.Text, p.Text, err)
		}
	})
}

// If an email would be too large after rendering, it is refused before it is rendered.
func TestTooLargeToFill(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		const places = 199
		line := strings.Repeat("{{{A}}}", places)
		many := slices.Repeat([]string{line + "@acme.example"}, 50)
		declared := []templates.Declaration{{Key: "A", Type: "string", Fallback: scalar.OfText("a")}}
		for field, n := range map[string]templates.NewTemplate{
			"from":     {From: line + "@acme.example"},
			"subject":  {From: "a@acme.example", Subject: line[:140*len("{{{A}}}")]},
			"reply_to": {From: "a@acme.example", Subject: "s", ReplyTo: many},
			"html":     {From: "a@acme.example", Subject: "s", HTML: new(strings.Repeat(line, 10))},
			"text":     {From: "a@acme.example", Subject: "s", Text: new(strings.Repeat(line, 10))},
		} {
			n.Name, n.Alias, n.Variables = field, field, declared
			if n.HTML == nil {
				n.HTML = new("<p>x</p>")
			}
			s.published(n)
			in := tea()
			in.TemplateID = field
			in.Variables = map[string]scalar.Value{"A": scalar.OfText(strings.Repeat("x", scalar.MaxText))}
			for what, do := range map[string]func() error{
				"send": func() error {
					_, err := s.Emails.Send(t.Context(), s.Acme, in, emails.Idempotency{})
					return err
				},
				"check": func() error { _, err := s.Emails.PreviewDraft(t.Context(), s.Acme.TeamID, in); return err },
				"render": func() error {
					_, err := s.Templates.Render(t.Context(), s.Acme.TeamID, field, templates.RenderOptions{Variables: in.Variables})
					return err
				},
			} {
				var err error
				made := allocated(func() { err = do() })
				if fault.KindOf(err) != fault.Invalid {
					t.Errorf("%s, %s: %v", what, field, err)
				}
				if made > 4<<20 {
					t.Errorf("%s, %s: it took %d bytes", what, field, made)
				}
			}
		}
	})
}

// If a header line of an email with shared content would be too long, the email is refused before the line is rendered.
func TestTooLongToEnqueue(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		html := "<p>x</p>"
		c := content.Content{TeamID: s.Acme.TeamID, From: "a@acme.example", Subject: "s", HTML: &html,
			ReplyTo: slices.Repeat([]string{strings.Repeat("{{{A|a}}}", 100) + "@acme.example"}, 50)}
		s.Update(func(tx *db.Tx) error { return s.Contents.Add(t.Context(), tx, &c) })
		m, err := s.Emails.Mailing(t.Context(), s.Acme, c.ID, false)
		if err == nil {
			t.Fatal("a local part of 100 bytes is accepted")
		}
		c.ID, c.ReplyTo = "", slices.Repeat([]string{strings.Repeat("{{{A}}}", 100) + "a@acme.example"}, 50)
		s.Update(func(tx *db.Tx) error { return s.Contents.Add(t.Context(), tx, &c) })
		if m, err = s.Emails.Mailing(t.Context(), s.Acme, c.ID, false); err != nil {
			t.Fatal(err)
		}
		s.Update(func(tx *db.Tx) error {
			var entered []emails.EnqueueResult
			made := allocated(func() {
				entered, err = s.Emails.Enqueue(t.Context(), tx, m, []emails.MailingRecipient{{Address: "bob@one.example",
					Values: render.Values{"A": strings.Repeat("x", 2000)}}})
			})
			if err != nil || !strings.Contains(fmt.Sprint(entered[0].Err), "`reply_to`") || made > 4<<20 {
				t.Errorf("%+v, %v, with %d bytes", entered, err, made)
			}
			return err
		})
	})
}

// If a template that was never published is deleted, its content is also deleted, because no email uses it.
func TestTextThatWasNeverSentIsDeleted(t *testing.T) {
	eachStencil(t, func(t *testing.T, s *stencil) {
		ctx := t.Context()
		s.Send(tea()) // an older email with content from another template
		made, err := s.Templates.Create(ctx, s.Acme.TeamID, templates.NewTemplate{Name: "x", HTML: new("<p>secret</p>")})
		if err == nil {
			_, err = s.Templates.Delete(ctx, s.Acme.TeamID, made.ID)
		}
		if err == nil {
			err = s.Templates.Sweep(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := s.count(`SELECT COUNT(*) FROM contents WHERE html LIKE '%secret%'`); n != 0 {
			t.Errorf("%d are left", n)
		}
		if n := s.count(`SELECT COUNT(*) FROM contents`); n != 1 {
			t.Errorf("%d contents are left in all", n)
		}
	})
}

// allocated returns the number of bytes that the function do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
