package broadcasts

import (
	"context"
	"html"
	"maps"
	"slices"
	"strings"

	xhtml "golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// contentOf converts a text into the content to be sent, whose HTML includes the preview text. Placeholders without
// their own fallback get the fallback of their contact property from the map fallbacks.
func contentOf(t Text, teamID string, fallbacks map[string]string) *content.Content {
	c := t.content(teamID)
	if t.HTML != nil {
		c.HTML = new(withPreview(*t.HTML, t.PreviewText))
	}
	fallback := func(placeholder string) (string, bool) {
		text, ok := fallbacks[emails.ContactProperty(placeholder)]
		return text, ok
	}
	c.From, c.Subject = render.WithFallbacks(c.From, fallback), render.WithFallbacks(c.Subject, fallback)
	c.ReplyTo = slices.Clone(c.ReplyTo)
	for i := range c.ReplyTo {
		c.ReplyTo[i] = render.WithFallbacks(c.ReplyTo[i], fallback)
	}
	for _, body := range []**string{&c.HTML, &c.Text} {
		if *body != nil {
			*body = new(render.WithFallbacks(**body, fallback))
		}
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
