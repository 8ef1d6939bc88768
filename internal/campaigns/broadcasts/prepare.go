package broadcasts

import (
	"context"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"

	xhtml "golang.org/x/net/html"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// contentOf converts a text into the content to be sent, whose HTML includes the preview text. In HTML, all values are
// escaped, because all placeholders are fields of contacts. Placeholders without their own fallback get the fallback of
// their contact property from the map fallbacks.
func contentOf(t Text, teamID string, fallbacks map[string]string) *content.Content {
	c := t.content(teamID)
	fallback := func(placeholder string) (string, bool) {
		text, ok := fallbacks[emails.ContactProperty(placeholder)]
		return text, ok
	}
	filled := func(text string) string { return render.WithFallbacks(text, fallback) }
	if t.HTML != nil {
		preview := render.WithEscapes(filled(t.PreviewText), true) // withPreview escapes the fallbacks
		c.HTML = new(withPreview(render.WithEscapes(render.WithHTMLFallbacks(*t.HTML, fallback), false), preview))
	}
	c.From, c.Subject = filled(c.From), filled(c.Subject)
	c.ReplyTo = slices.Clone(c.ReplyTo)
	for i := range c.ReplyTo {
		c.ReplyTo[i] = filled(c.ReplyTo[i])
	}
	if c.Text != nil {
		c.Text = new(filled(*c.Text))
	}
	return c
}

// previewFill is invisible white space that follows a preview text, so that mail clients do not show the start of the
// body after the preview text.
var previewFill = strings.Repeat("&#847;&zwnj;&nbsp;", 60)

// withPreview inserts a preview text as hidden text at the start of the HTML body, where mail clients look for it.
func withPreview(source, preview string) string {
	if preview == "" || strings.TrimSpace(source) == "" {
		return source
	}
	at := bodyBegins(source)
	return source[:at] + `<div style="display:none;max-height:0;overflow:hidden;mso-hide:all" aria-hidden="true">` +
		html.EscapeString(preview) + previewFill + `</div>` + source[at:]
}

// bodyBegins returns the offset at which the content of an HTML body begins. The content begins after the body tag. If
// there is no body tag, the content begins after everything that can only precede a body.
func bodyBegins(source string) (at int) {
	s := htmltext.NewScanner(source)
	head := false
	for {
		kind, start, end := s.Next()
		tag := strings.ToLower(strings.Trim(source[start:min(end, start+16)], "</> \t\r\n"))
		name, _, _ := strings.Cut(strings.ReplaceAll(strings.ReplaceAll(tag, "\n", " "), ">", " "), " ")
		switch {
		case kind == xhtml.ErrorToken:
			return at
		case kind == xhtml.StartTagToken && name == "body":
			return end
		case kind == xhtml.DoctypeToken, kind == xhtml.StartTagToken && name == "html",
			kind == xhtml.EndTagToken && name == "head":
			at, head = end, false
		case kind == xhtml.StartTagToken && name == "head":
			head = true
		case kind == xhtml.CommentToken, kind == xhtml.TextToken && strings.TrimSpace(source[start:end]) == "", head:
		default:
			return at
		}
	}
}

// placeholdersOf returns the placeholders in a list of contents, and the contact properties that fill them.
func placeholdersOf(all []*content.Compiled) (placeholders, properties []string) {
	found, of := map[string]bool{}, map[string]bool{}
	for _, c := range all {
		for _, name := range c.Names() {
			found[name] = true
			if p := emails.ContactProperty(name); p != "" {
				of[p] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), slices.Sorted(maps.Keys(of))
}

// filling says how the placeholders of a broadcast are filled.
type filling struct {
	placeholders []string
	properties   []string          // the contact properties that fill placeholders
	fallbacks    map[string]string // the fallbacks that the placeholders cannot contain, by placeholder
}

// fillingOf returns the filling for a list of contents.
func (s *Service) fillingOf(ctx context.Context, teamID string, all []*content.Compiled) (f filling, err error) {
	f.placeholders, f.properties = placeholdersOf(all)
	known, err := s.p.Contacts.PropertiesNamed(ctx, s.p.DB.Reader, teamID, f.properties)
	if err != nil {
		return f, err
	}
	for _, name := range f.placeholders {
		for _, p := range known {
			if p.Name == emails.ContactProperty(name) && !render.CanContain(p.Fallback.Text) {
				if f.fallbacks == nil {
					f.fallbacks = map[string]string{}
				}
				f.fallbacks[name] = p.Fallback.Text
			}
		}
	}
	return f, nil
}

// values returns a contact's values for the placeholders, and the fallbacks for those without a value.
func (f *filling) values(m *contacts.Member) render.Values {
	values := emails.ContactValues(m, f.placeholders)
	for name, text := range f.fallbacks {
		if _, ok := values[name]; !ok {
			values.SetFallback(name, text)
		}
	}
	return values
}

// textsOf returns the texts of a broadcast's variants, or the broadcast's own text if it has no variants.
func textsOf(b *Broadcast) []Text {
	if len(b.Variants) == 0 {
		return []Text{b.Text}
	}
	all := make([]Text, len(b.Variants))
	for i := range b.Variants {
		all[i] = b.Variants[i].apply(b.Text)
	}
	return all
}

// contents returns the content to be sent for each variant of a broadcast, or a single content if the broadcast has no
// variants.
func (s *Service) contents(ctx context.Context, b *Broadcast) ([]*content.Content, error) {
	texts := textsOf(b)
	compiled := make([]*content.Compiled, len(texts))
	for i := range texts {
		compiled[i] = content.Compile(contentOf(texts[i], b.TeamID, nil))
	}
	_, properties := placeholdersOf(compiled)
	known, err := s.p.Contacts.PropertiesNamed(ctx, s.p.DB.Reader, b.TeamID, properties)
	if err != nil {
		return nil, err
	}
	fallbacks := map[string]string{}
	for _, p := range known {
		fallbacks[p.Name] = p.Fallback.Text
	}
	all := make([]*content.Content, len(texts))
	for i := range texts {
		all[i] = contentOf(texts[i], b.TeamID, fallbacks)
	}
	return all, nil
}

// checkPlaceholders checks the placeholders of a broadcast by the rules for templates: each must be well formed, and
// each without a fallback must name a field or a property of contacts. If only is not "", only the field with this name
// is checked.
func (s *Service) checkPlaceholders(ctx context.Context, b *Broadcast, only string) error {
	known := map[string]bool{"": true}
	properties, err := s.p.Contacts.PropertiesNamed(ctx, s.p.DB.Reader, b.TeamID, nil)
	if err != nil {
		return err
	}
	for _, p := range properties {
		known[p.Name] = true
	}
	for i, t := range textsOf(b) {
		var set Variant // the fields that the variant itself sets
		if len(b.Variants) > 0 {
			set = b.Variants[i]
		}
		for _, f := range t.fields() {
			field := f.name
			if only != "" && field != only {
				continue
			}
			if set.sets(field) {
				field = fmt.Sprintf("variants[%d].%s", i, field)
			}
			if err := content.CheckPlaceholders(field, f.text); err != nil {
				return err
			}
			compiled := render.Compile(f.text)
			for _, name := range compiled.Required() {
				if !known[emails.ContactProperty(name)] {
					return fault.Invalidf(field, "The `%s` field uses the placeholder %s, which is no field and no property of "+
						"contacts. Create the property, correct the name, or write {{{%s|fallback}}}.", field, name, name)
				}
			}
		}
	}
	return nil
}

// textField is one of the texts of a broadcast, with its name in the API.
type textField struct{ name, text string }

func (t *Text) fields() []textField {
	all := []textField{{"from", t.From}, {"subject", t.Subject}, {"preview_text", t.PreviewText}}
	if t.HTML != nil {
		all = append(all, textField{"html", *t.HTML})
	}
	if t.Plain != nil {
		all = append(all, textField{"text", *t.Plain})
	}
	for _, address := range t.ReplyTo {
		all = append(all, textField{"reply_to", address})
	}
	return all
}

// sets reports whether a variant sets the field with the given name.
func (v *Variant) sets(field string) bool {
	of := map[string]*string{"from": v.From, "subject": v.Subject, "preview_text": v.PreviewText, "html": v.HTML,
		"text": v.Plain}
	return of[field] != nil
}
