// Package content stores what many emails share: subject, sender, texts and headers, as templates that are filled for
// each email with its own values. The text of a broadcast to a million recipients is stored once.
//
// # Invariants
//
// The texts of a content never change once it is added, so every node caches its compiled form by its id. It belongs to
// a team and is found only together with the team's id. It is kept as long as an email refers to it: its row says from
// which id on and until when emails with it were accepted, and package emails looks among these before it has a content
// that is not marked as kept deleted by [Service.RemoveUnused]. No index of emails has their contents, so that an email
// of a broadcast costs less. [Service.Delete] is for a content that no email ever had.
//
// The row stays true when the clock is set back, and when nodes differ by minutes: each use is noted within an hour of
// the emails that it stands for, and they are looked for from two hours before the earliest to two hours after the last.
//
// # When it fails
//
// A content that does not exist, or that belongs to another team, is a NotFound fault. Errors of the database are
// returned; nothing is cached then.
//
// # What it does not do
//
// It stores no emails and does not know who receives them: package emails does. It does not check the rules of an
// email, which apply to the filled texts, and it does not know the names of placeholders.
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

// Limits of the lines of one email once they are filled, in octets.
const (
	MaxSubject = 998
	MaxMailbox = 320 + 2*MaxSubject // an address with its display name
)

// Content is what many emails share. Each of its texts is a template (see package render).
type Content struct {
	ID        string // made by Add when empty
	TeamID    string
	From      string
	Subject   string
	ReplyTo   []string
	HTML      *string // nil when not given
	Text      *string // nil when not given, so that it is made from the HTML; empty for no text part
	Headers   []message.Field
	CreatedAt time.Time // set by Add

	// Kept is set in Add if emails may be sent with it again at any time, as with a template. Release clears it.
	Kept bool
}

// Compiled is a content that is ready to be filled. It never changes and is safe for concurrent use.
type Compiled struct {
	Ref

	from, subject render.Template
	replyTo       []render.Template
	headers       []message.Field
	values        []render.Template // of headers
	html          *render.HTML      // nil when not given
	text          *render.Template  // nil when not given
	convertedText string            // the text part made from HTML that has no placeholders
	names         map[string]bool   // of placeholders; true if all that have it have a fallback
	placeholders  int
	size          int64 // octets of the templates
}

// Ref refers to a content, of which it holds no text.
type Ref struct {
	ID      string
	TeamID  string
	lastUse *atomic.Pointer[recordedUse] // the last that this process noted
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

// CheckLines returns an Invalid fault if the sender, the subject or an address for replies of one email would be longer
// than it may be. Nothing is filled for it, so what would take much memory is refused before it does.
func (c *Compiled) CheckLines(v render.Values) error {
	return cmp.Or(c.CheckFrom(v), c.CheckSubject(v), c.CheckReplyTo(v))
}

// CheckFrom is CheckLines of the sender alone.
func (c *Compiled) CheckFrom(v render.Values) error {
	if c.from.Len(v) > MaxMailbox {
		return tooLong("from")
	}
	return nil
}

// CheckSubject is CheckLines of the subject alone.
func (c *Compiled) CheckSubject(v render.Values) error {
	if n := c.subject.Len(v); n > MaxSubject {
		return fault.Invalidf("subject", "The `subject` field has %d octets; the limit is %d.", n, MaxSubject)
	}
	return nil
}

// CheckReplyTo is CheckLines of the addresses for replies alone.
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

// From is the sender's mailbox of one email.
func (c *Compiled) From(v render.Values) string { return c.from.Line(v) }

// Subject is the subject of one email.
func (c *Compiled) Subject(v render.Values) string { return c.subject.Line(v) }

// ReplyTo is the addresses for replies to one email, or nil if it has none.
func (c *Compiled) ReplyTo(v render.Values) (all []string) {
	for i := range c.replyTo {
		all = append(all, c.replyTo[i].Line(v))
	}
	return all
}

// Headers are the additional header fields of one email. Their number does not depend on the values.
func (c *Compiled) Headers(v render.Values) []message.Field {
	all := make([]message.Field, len(c.headers))
	for i, f := range c.headers {
		all[i] = message.Field{Name: f.Name, Value: c.values[i].Line(v)}
	}
	return all
}

// HTML is the HTML of one email, or nil if none was given.
func (c *Compiled) HTML(v render.Values) *string {
	if c.html == nil {
		return nil
	}
	return fill(&c.html.Template, v)
}

// HasHTML reports whether the emails have an HTML part.
func (c *Compiled) HasHTML() bool { return c.html != nil && c.html.Source() != "" }

// Text is the text of one email if it was given, or nil.
func (c *Compiled) Text(v render.Values) *string { return fill(c.text, v) }

// Bodies are the HTML and the text of one email as they are sent. The text is made from the HTML if none was given.
func (c *Compiled) Bodies(v render.Values) (html, text string) {
	if c.html != nil {
		html = c.html.Fill(v)
	}
	return html, c.textOf(v, html)
}

// TrackedBodies is Bodies with other links, and with a pixel, in the HTML; see [render.HTML.Track]. The text has the links of
// the author.
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

// textOf is the text of one email. html is its HTML, which is not needed if it has no placeholders or if the text was
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

// Size is the size of the HTML and the given text of one email, in octets, or that of the templates if it is larger:
// these are in memory, too.
func (c *Compiled) Size(v render.Values) (n int64) {
	for _, t := range c.bodyTemplates() {
		n += int64(t.Len(v))
	}
	return max(n, c.size)
}

// Empty reports whether nothing is left of the HTML and the text of one email.
func (c *Compiled) Empty(v render.Values) bool {
	return !slices.ContainsFunc(c.bodyTemplates(), func(t *render.Template) bool { return t.Len(v) > 0 })
}

// Placeholders is the number of placeholders. Each takes some memory of its own.
func (c *Compiled) Placeholders() int { return c.placeholders }

// SameHeaders reports whether the further header fields are the same in all emails.
func (c *Compiled) SameHeaders() bool {
	return !slices.ContainsFunc(c.values, func(t render.Template) bool { return !t.Fixed() })
}

// Names are the names of all placeholders, each once, sorted.
func (c *Compiled) Names() []string { return slices.Sorted(maps.Keys(c.names)) }

func (c *Compiled) has(name string) bool {
	_, ok := c.names[name]
	return ok
}

// Optional reports whether the content has placeholders of a name, and all of them have a fallback, so that no value is
// needed.
func (c *Compiled) Optional(name string) bool { return c.names[name] }

// UsedValues returns those values whose names occur in the content. If all do, it returns v itself.
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

// SameEnvelope reports whether the sender, the addresses for replies and the subject are the same in all emails.
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

// bodyTemplates are the HTML and the text, as far as they were given.
func (c *Compiled) bodyTemplates() (all []*render.Template) {
	if c.html != nil {
		all = append(all, &c.html.Template)
	}
	if c.text != nil {
		all = append(all, c.text)
	}
	return all
}
