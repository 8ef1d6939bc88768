package broadcasts_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
)

// Send refuses the placeholders that templates refuse, in each field of the broadcast and of its variants.
func TestPlaceholdersAreChecked(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(1)
		_, err := s.Contacts.CreateProperty(t.Context(), s.Acme.TeamID, contacts.NewProperty{Name: "plan",
			Type: scalar.String})
		s.Must(err)
		const unknown, unclosed = "uses the placeholder plan2, which is no field", "is not well formed"
		variant := func(v broadcasts.Variant) func(n *broadcasts.NewBroadcast) {
			return func(n *broadcasts.NewBroadcast) { n.Variants = []broadcasts.Variant{{}, v} }
		}
		for i, c := range []struct {
			change      func(n *broadcasts.NewBroadcast)
			field, text string
		}{
			{func(n *broadcasts.NewBroadcast) { n.HTML = new("{{{FIRST_NAME") }, "html", unclosed},
			{func(n *broadcasts.NewBroadcast) { n.HTML = new("{{{plan2}}}") }, "html", unknown},
			{func(n *broadcasts.NewBroadcast) { n.HTML = new("{{{contact.plan2}}}") }, "html", "contact.plan2"},
			{func(n *broadcasts.NewBroadcast) { n.Plain = new("{{{raw plan2}}}") }, "text", unknown},
			{func(n *broadcasts.NewBroadcast) { n.Subject = "x {{{plan2}}}" }, "subject", unknown},
			{func(n *broadcasts.NewBroadcast) { n.PreviewText = "{{{plan|x" }, "preview_text", unclosed},
			{func(n *broadcasts.NewBroadcast) { n.From = "{{{plan2}}} <news@acme.example>" }, "from", unknown},
			{func(n *broadcasts.NewBroadcast) { n.ReplyTo = []string{"{{{plan2}}} <a@acme.example>"} }, "reply_to", unknown},
			{variant(broadcasts.Variant{Subject: new("{{{plan2}}}")}), "variants[1].subject", unknown},
			{variant(broadcasts.Variant{HTML: new("{{{plan")}), "variants[1].html", unclosed},
			{func(n *broadcasts.NewBroadcast) {
				n.HTML = new("{{{plan2|free}}} {{{contact.plan2|}}} {{{plan}}} {{{RESEND_EMAIL}}} {{{UNSUBSCRIBE_URL}}} {{none}}")
			}, "", ""},
		} {
			n := s.news()
			c.change(&n)
			id := s.draft(n)
			_, err := s.b.Send(t.Context(), s.Acme, id, "")
			_, again := s.b.CreateAndSend(t.Context(), s.Acme, n, "")
			if c.field == "" {
				s.Must(errors.Join(err, again))
				continue
			}
			for _, err := range []error{err, again} {
				f, ok := errors.AsType[*fault.Error](err)
				if !ok || f.Kind != fault.Invalid || f.Field != c.field || !strings.Contains(f.Error(), c.text) {
					t.Errorf("%d: %v, want %s of %s", i, err, c.text, c.field)
				}
			}
		}
	})
}

// Values that contacts typed cannot add markup to the HTML or the preview text, and cannot change the address beside a
// name. Fallbacks of properties may have any characters and any length. An empty property counts as no value.
func TestValuesOfContacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx, team := t.Context(), s.Acme.TeamID
		long := strings.Repeat("ü", 1500)
		for name, fallback := range map[string]string{"plan": "{<free>}}}", "tag": "<x>", "long": long, "city": "Bonn"} {
			_, err := s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: name, Type: scalar.String,
				Fallback: scalar.OfText(fallback)})
			s.Must(err)
		}
		s.join("ann@reader.example", "bob@reader.example")
		for address, of := range map[string]contacts.Change{
			"ann@reader.example": {FirstName: new(`Doe, "Ann" <b>`), LastName: new("Smith, Jr."),
				Properties: map[string]scalar.Value{"plan": scalar.OfText("<i>"), "city": scalar.OfText("")}},
			"bob@reader.example": {FirstName: new(""), LastName: new("Zoë")}} {
			_, _, err := s.Contacts.Upsert(ctx, team, address, of)
			s.Must(err)
		}
		n := s.news()
		n.From = "{{{LAST_NAME}}} at Acme <news@" + testnode.Domain + ">"
		n.ReplyTo = []string{"{{{FIRST_NAME}}} <help@acme.example>"}
		n.Subject, n.PreviewText = "{{{FIRST_NAME|you}}} {{{plan}}}", "{{{raw FIRST_NAME|R&D}}}: {{{plan}}}"
		n.HTML = new("<p>{{{plan}}} {{{raw plan|own}}} {{{city|own}}} {{{contact.city}}} {{{escape FIRST_NAME}}}" +
			"{{{tag}}}{{{raw tag}}}</p>")
		n.Plain = new("{{{plan}}} {{{long}}}")
		id := s.draft(n)
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.walked(id, 2)
		escaped := "Doe, &#34;Ann&#34; &lt;b&gt;"
		for address, want := range map[string]struct{ from, replyTo, subject, preview, html, text string }{
			"ann@reader.example": {`"Smith, Jr. at Acme" <news@` + testnode.Domain + ">",
				`"Doe, \"Ann\" <b>" <help@acme.example>`, `Doe, "Ann" <b> <i>`, escaped + ": &lt;i&gt;",
				"<p>&lt;i&gt; <i> own Bonn " + escaped + "&lt;x&gt;<x></p>", "<i> " + long},
			"bob@reader.example": {"Zoë at Acme <news@" + testnode.Domain + ">", "<help@acme.example>", "you {<free>}}}",
				"R&amp;D: {&lt;free&gt;}}}", "<p>{&lt;free&gt;}}} own own Bonn &lt;x&gt;<x></p>", "{<free>}}} " + long},
		} {
			var emailID string
			s.Must(s.DB.QueryRow(ctx, `SELECT email_id FROM broadcast_recipients WHERE address = $1`,
				address).Scan((*db.ID)(&emailID)))
			e := s.Email(emailID)
			if e.From != want.from || !slices.Equal(e.ReplyTo, []string{want.replyTo}) || e.Subject != want.subject {
				t.Errorf("%s gets %q, %q, %q", address, e.From, e.ReplyTo, e.Subject)
			}
			if !strings.Contains(*e.HTML, ">"+want.preview+"&#847;") || !strings.Contains(*e.HTML, want.html) ||
				*e.Text != want.text {
				t.Errorf("%s gets %s\nand\n%.100s", address, *e.HTML, *e.Text)
			}
		}
	})
}
