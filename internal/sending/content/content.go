// Package content stores what many emails share: sender, subject, texts and headers. The shared parts are templates
// that are filled with the values of each email. The text of a broadcast to a million recipients is stored once.
//
// # Invariants
//
// A content never changes after it is added, so every node caches its compiled form by id. A content belongs to a team
// and is found only with the team's id. A content is stored as long as an email refers to it. The row of a content has
// a lower bound for the ids of these emails and the time of its last recorded use. Package emails searches this range
// before it lets [Service.RemoveUnused] delete a content that is not marked as kept. Emails have no index by content,
// which makes an email of a broadcast cheaper. [Service.Delete] is for a content that no email ever had.
//
// The row stays right if a clock is set back or if the clocks of nodes differ by minutes. Each use is recorded within
// an hour of its emails. The search begins two hours before the first of them and ends two hours after the last.
//
// # When it fails
//
// A content that does not exist, or that belongs to another team, is a NotFound fault. Errors of the database are
// returned and not cached.
//
// # What it does not do
//
// The package stores no emails and no recipients: package emails does. It does not check the rules of emails:
// package emails checks them after placeholders are filled. It gives placeholders no meaning.
package content

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/render"
)

// Greatest sizes of an email's header lines in bytes, after placeholders are filled.
const (
	MaxSubject = 998
	MaxMailbox = 320 + 2*MaxSubject // an address with its display name
)

// Content holds the shared parts of emails. Each text is a template (see package render).
type Content struct {
	ID        string // set by Add if empty
	TeamID    string
	From      string
	Subject   string
	ReplyTo   []string
	HTML      *string // nil when not given
	Text      *string // nil: converted from the HTML; empty: no text part
	Headers   []message.Field
	CreatedAt time.Time // set by Add

	// Kept protects the content from RemoveUnused, because more emails may use it at any time, as with a template.
	// Release clears it.
	Kept bool
}

// Compiled is a content that is ready to be filled. It is immutable and safe for concurrent use.
type Compiled struct {
	Ref

	from, subject render.Template
	replyTo       []render.Template
	headers       []message.Field
	values        []render.Template // the values of headers
	html          *render.HTML      // nil when not given
	text          *render.Template  // nil when not given
	convertedText string            // the text part converted from HTML without placeholders
	names         map[string]bool   // names of placeholders; true if all placeholders with that name have a fallback
	placeholders  int
	size          int64 // bytes of the texts before filling
}

// Ref identifies a content without holding its texts.
type Ref struct {
	ID      string
	TeamID  string
	lastUse *atomic.Pointer[recordedUse] // the last use that this process recorded
}

// Compile prepares a content to be filled.
func Compile(c *Content) *Compiled {
	k := &Compiled{Ref: Ref{c.ID, c.TeamID, new(atomic.Pointer[recordedUse])}, from: render.Compile(c.From),
		subject: render.Compile(c.Subject), headers: c.Headers}
	for _, text := range c.ReplyTo {
		k.replyTo = append(k.replyTo, render.Compile(text))
	}
	for _, f := range c.Headers {
		k.values = append(k.values, render.Compile(f.Value))
		k.size += int64(len(f.Name) + len(f.Value))
	}
	if c.HTML != nil {
		k.html = render.CompileHTML(*c.HTML)
		k.size += int64(len(*c.HTML))
		if c.Text == nil && k.html.Fixed() {
			k.convertedText = htmltext.FromHTML(*c.HTML)
		}
	}
	if c.Text != nil {
		t := render.Compile(*c.Text)
		k.text = &t
		k.size += int64(len(*c.Text))
	}
	k.names = map[string]bool{}
	for _, t := range k.templates() {
		k.placeholders += t.Placeholders()
		for _, name := range t.Names() {
			if _, found := k.names[name]; !found {
				k.names[name] = true
			}
		}
		for _, name := range t.Required() {
			k.names[name] = false
		}
	}
	return k
}

// CheckLines returns an Invalid fault if the sender, the subject or a reply-to address of one email would be too long.
// It computes the lengths without filling the texts, so that oversized values occupy no memory.
func (c *Compiled) CheckLines(v render.Values) error {
	return cmp.Or(c.CheckFrom(v), c.CheckSubject(v), c.CheckReplyTo(v))
}

// CheckFrom is CheckLines for the sender alone.
func (c *Compiled) CheckFrom(v render.Values) error {
	if c.from.Len(v) > MaxMailbox {
		return tooLong("from")
	}
	return nil
}

// CheckSubject is CheckLines for the subject alone.
func (c *Compiled) CheckSubject(v render.Values) error {
	if n := c.subject.Len(v); n > MaxSubject {
		return fault.Invalidf("subject", "The `subject` field has %d bytes; the limit is %d.", n, MaxSubject)
	}
	return nil
}

// CheckReplyTo is CheckLines for the reply-to addresses alone.
func (c *Compiled) CheckReplyTo(v render.Values) error {
	for i := range c.replyTo {
		if c.replyTo[i].Len(v) > MaxMailbox {
			return tooLong("reply_to")
		}
	}
	return nil
}

func tooLong(field string) error {
	return fault.Invalidf(field, "Invalid `%s` field. The address is too long.", field)
}

// From returns the sender of one email.
func (c *Compiled) From(v render.Values) string { return c.from.Line(v) }

// Subject returns the subject of one email.
func (c *Compiled) Subject(v render.Values) string { return c.subject.Line(v) }

// ReplyTo returns the reply-to addresses of one email, or nil if it has none.
func (c *Compiled) ReplyTo(v render.Values) (all []string) {
	for i := range c.replyTo {
		all = append(all, c.replyTo[i].Line(v))
	}
	return all
}

// Headers returns the additional header fields of one email. The number of fields does not depend on the values.
func (c *Compiled) Headers(v render.Values) []message.Field {
	all := make([]message.Field, len(c.headers))
	for i, f := range c.headers {
		all[i] = message.Field{Name: f.Name, Value: c.values[i].Line(v)}
	}
	return all
}

// HTML returns the HTML of one email, or nil if none was given.
func (c *Compiled) HTML(v render.Values) *string {
	if c.html == nil {
		return nil
	}
	return fill(&c.html.Template, v)
}

// HasHTML reports whether the emails have an HTML part.
func (c *Compiled) HasHTML() bool { return c.html != nil && c.html.Source() != "" }

// Text returns the given text of one email, or nil if none was given.
func (c *Compiled) Text(v render.Values) *string { return fill(c.text, v) }

// Bodies returns the HTML and the text of one email as they are sent. The text is converted from the HTML if none was
// given.
func (c *Compiled) Bodies(v render.Values) (html, text string) {
	if c.html != nil {
		html = c.html.Fill(v)
	}
	return html, c.textOf(v, html)
}

// TrackedBodies is like Bodies, with replaced links and a pixel in the HTML; see [render.HTML.Track]. The text has the
// original links.
func (c *Compiled) TrackedBodies(v render.Values, link func(dst, target []byte) ([]byte, bool),
	pixel func(dst []byte) []byte) (html, text string) {
	if !c.HasHTML() {
		return c.Bodies(v)
	}
	if c.text == nil && !c.html.Fixed() {
		html = c.html.Fill(v)
	}
	text = c.textOf(v, html)
	return c.html.Track(v, link, pixel), text
}

// textOf returns the text of one email. It reads the filled html only if the HTML has placeholders and no text was
// given.
func (c *Compiled) textOf(v render.Values, html string) string {
	switch {
	case c.text != nil:
		return c.text.Fill(v)
	case c.html != nil && c.html.Fixed():
		return c.convertedText
	}
	return htmltext.FromHTML(html)
}

func fill(t *render.Template, v render.Values) *string {
	if t == nil {
		return nil
	}
	text := t.Fill(v)
	return &text
}

// Size returns the bytes of the HTML and the given text of one email. It returns at least the bytes of the unfilled
// texts, because these occupy memory, too.
func (c *Compiled) Size(v render.Values) (n int64) {
	for _, t := range c.bodyTemplates() {
		n += int64(t.Len(v))
	}
	return max(n, c.size)
}

// Empty reports whether the HTML and the text of one email are empty after filling.
func (c *Compiled) Empty(v render.Values) bool {
	return !slices.ContainsFunc(c.bodyTemplates(), func(t *render.Template) bool { return t.Len(v) > 0 })
}

// Placeholders returns the number of placeholders. Each placeholder occupies some memory.
func (c *Compiled) Placeholders() int { return c.placeholders }

// SameHeaders reports whether all emails have the same additional header fields.
func (c *Compiled) SameHeaders() bool {
	return !slices.ContainsFunc(c.values, func(t render.Template) bool { return !t.Fixed() })
}

// Names returns the names of all placeholders, sorted, each once.
func (c *Compiled) Names() []string { return slices.Sorted(maps.Keys(c.names)) }

func (c *Compiled) has(name string) bool {
	_, ok := c.names[name]
	return ok
}

// Optional reports whether the content has placeholders with a name, and all of them have fallbacks, so that no value
// is needed.
func (c *Compiled) Optional(name string) bool { return c.names[name] }

// UsedValues returns the values whose names occur in the content. If all names occur, UsedValues returns v itself.
func (c *Compiled) UsedValues(v render.Values) render.Values {
	for name := range v {
		if !c.has(name) {
			used := maps.Clone(v)
			maps.DeleteFunc(used, func(name, _ string) bool { return !c.has(name) })
			return used
		}
	}
	return v
}

// SameEnvelope reports whether all emails have the same sender, reply-to addresses and subject.
func (c *Compiled) SameEnvelope() bool {
	return c.from.Fixed() && c.subject.Fixed() &&
		!slices.ContainsFunc(c.replyTo, func(t render.Template) bool { return !t.Fixed() })
}

func (c *Compiled) templates() (all []*render.Template) {
	all = append(all, &c.from, &c.subject)
	for _, list := range [][]render.Template{c.replyTo, c.values} {
		for i := range list {
			all = append(all, &list[i])
		}
	}
	return append(all, c.bodyTemplates()...)
}

// bodyTemplates returns the templates of the HTML and the text, as far as they were given.
func (c *Compiled) bodyTemplates() (all []*render.Template) {
	if c.html != nil {
		all = append(all, &c.html.Template)
	}
	if c.text != nil {
		all = append(all, c.text)
	}
	return all
}
