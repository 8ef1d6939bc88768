// Package content stores what many emails have in common: sender, subject, body and headers. The common parts of emails
// are templates, which are filled with the values of each email. The text of a broadcast to a million recipients, for
// example, is stored only once.
//
// # Invariants
//
// A Content never changes after it is added, so every node caches its compiled form by id. A Content belongs to a team
// and can be read only with the team's id. A Content is stored as long as an email refers to it. The database row of a
// Content holds a lower bound for the ids of the emails that refer to it, and the time of its last recorded use.
// Package emails searches the recorded range of ids before [Service.RemoveUnused] deletes a Content that is not marked
// as kept. Emails are not indexed by Content, which makes inserting an email cheaper. [Service.Delete] is for a Content
// to which no email has ever referred.
//
// The range of ids stays correct if a clock is set back or if the nodes' clocks differ by minutes. Each use of a
// Content is recorded within an hour of the emails that use it. The search for emails starts two hours before the first
// recorded use and ends two hours after the last one.
//
// # Failures
//
// Reading a Content that does not exist or belongs to another team returns a NotFound fault. Database errors are
// returned and not cached.
//
// # Out of scope
//
// Package content stores no emails or recipients; package emails does. Package content does not validate emails;
// package emails validates them after placeholders are filled. Package content does not interpret placeholders.
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

// Maximum sizes of an email's header lines in bytes, after placeholders are filled.
const (
	MaxSubject = 998
	MaxMailbox = 320 + 2*MaxSubject // maximum size, in bytes, of an address with its display name
)

// Content holds the parts that emails have in common. Each string in a Content is a template (see package render).
type Content struct {
	ID        string // set by Add if empty
	TeamID    string
	From      string
	Subject   string
	ReplyTo   []string
	HTML      *string // nil if there is no HTML part
	Text      *string // if nil, the text part is converted from the HTML; if empty, there is no text part
	Headers   []message.Field
	CreatedAt time.Time // set by Add

	// Kept protects a Content from RemoveUnused, because more emails may use it at any time, for example if it belongs
	// to a template. Release clears it.
	Kept bool
}

// Compiled is a Content that is parsed and ready to be filled with values. A Compiled is immutable and safe for
// concurrent use.
type Compiled struct {
	Ref

	from          mailbox
	subject       render.Template
	replyTo       []mailbox
	headers       []message.Field
	values        []render.Template // templates for the values of headers
	html          *render.HTML      // nil if no HTML was given
	text          *render.Template  // nil if no text was given
	convertedText string            // text part converted from the HTML, if the HTML has no placeholders
	names         map[string]bool   // placeholder names; true if every placeholder with the name has a fallback
	placeholders  int
	size          int64 // total size, in bytes, of the unfilled templates
}

// Ref identifies a Content without holding its texts.
type Ref struct {
	ID      string
	TeamID  string
	lastUse *atomic.Pointer[recordedUse] // the last use of the Content that this process recorded
}

// Compile parses a Content so that it can be filled with values.
func Compile(c *Content) *Compiled {
	k := &Compiled{Ref: Ref{c.ID, c.TeamID, new(atomic.Pointer[recordedUse])}, from: compileMailbox(c.From),
		subject: render.Compile(c.Subject), headers: c.Headers}
	for _, text := range c.ReplyTo {
		k.replyTo = append(k.replyTo, compileMailbox(text))
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

// CheckLines returns an Invalid fault if the sender, the subject or a reply-to address of an email would be too long
// with the given values. CheckLines computes the lengths without filling the texts, so that oversized values occupy no
// memory.
func (c *Compiled) CheckLines(v render.Values) error {
	return cmp.Or(c.CheckFrom(v), c.CheckSubject(v), c.CheckReplyTo(v))
}

// CheckFrom is like CheckLines, but checks only the sender.
func (c *Compiled) CheckFrom(v render.Values) error {
	if c.from.Len(v) > MaxMailbox {
		return tooLong("from")
	}
	return nil
}

// CheckSubject is like CheckLines, but checks only the subject.
func (c *Compiled) CheckSubject(v render.Values) error {
	if n := c.subject.Len(v); n > MaxSubject {
		return fault.Invalidf("subject", "The `subject` field has %d bytes; the limit is %d.", n, MaxSubject)
	}
	return nil
}

// CheckReplyTo is like CheckLines, but checks only the reply-to addresses.
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

// From returns the sender, filled with an email's values.
func (c *Compiled) From(v render.Values) string { return c.from.fill(v) }

// Subject returns the subject, filled with an email's values.
func (c *Compiled) Subject(v render.Values) string { return c.subject.Line(v) }

// ReplyTo returns the reply-to addresses, filled with an email's values, or nil if there are none.
func (c *Compiled) ReplyTo(v render.Values) (all []string) {
	for i := range c.replyTo {
		all = append(all, c.replyTo[i].fill(v))
	}
	return all
}

// Headers returns the additional header fields, filled with an email's values. The number of header fields does not
// depend on the values.
func (c *Compiled) Headers(v render.Values) []message.Field {
	all := make([]message.Field, len(c.headers))
	for i, f := range c.headers {
		all[i] = message.Field{Name: f.Name, Value: c.values[i].Line(v)}
	}
	return all
}

// HTML returns the HTML, filled with an email's values, or nil if no HTML was given.
func (c *Compiled) HTML(v render.Values) *string {
	if c.html == nil {
		return nil
	}
	return fill(&c.html.Template, v)
}

// HasHTML reports whether the emails have an HTML part.
func (c *Compiled) HasHTML() bool { return c.html != nil && c.html.Source() != "" }

// HasLinks reports whether the HTML has links that can be tracked.
func (c *Compiled) HasLinks() bool { return c.html != nil && c.html.Links() > 0 }

// Text returns the given text, filled with an email's values, or nil if no text was given.
func (c *Compiled) Text(v render.Values) *string { return fill(c.text, v) }

// Bodies returns the HTML and the text of an email as they are sent. If no text was given, Bodies converts the HTML to
// text.
func (c *Compiled) Bodies(v render.Values) (html, text string) {
	if c.html != nil {
		html = c.html.Fill(v)
	}
	return html, c.textOf(v, html)
}

// TrackedBodies is like Bodies, but replaces the links in the HTML and adds a tracking pixel (see [render.HTML.Track]).
// In the result of TrackedBodies, the text still has the original links.
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

// textOf returns the text part of an email. The filled HTML is used only if the HTML has placeholders and no text was
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

// Size returns the total size, in bytes, of an email's HTML and given text. Size never returns less than the size of
// the unfilled templates, because they also occupy memory.
func (c *Compiled) Size(v render.Values) (n int64) {
	for _, t := range c.bodyTemplates() {
		n += int64(t.Len(v))
	}
	return max(n, c.size)
}

// Empty reports whether an email's HTML and text are both empty after filling.
func (c *Compiled) Empty(v render.Values) bool {
	return !slices.ContainsFunc(c.bodyTemplates(), func(t *render.Template) bool { return t.Len(v) > 0 })
}

// Placeholders returns the number of placeholders in all templates. Callers limit the number of placeholders, because
// each occupies some memory.
func (c *Compiled) Placeholders() int { return c.placeholders }

// SameHeaders reports whether the additional header fields are the same for all values.
func (c *Compiled) SameHeaders() bool {
	return !slices.ContainsFunc(c.values, func(t render.Template) bool { return !t.Fixed() })
}

// Names returns the distinct names of all placeholders, sorted.
func (c *Compiled) Names() []string { return slices.Sorted(maps.Keys(c.names)) }

func (c *Compiled) has(key string) bool {
	_, ok := c.names[render.NameOf(key)]
	return ok
}

// Optional reports whether placeholders with the name exist and all of them have fallbacks, so that no value is
// required.
func (c *Compiled) Optional(name string) bool { return c.names[name] }

// UsedValues returns the values whose names occur in the templates. If all names occur, UsedValues returns the map v
// itself.
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

// SameEnvelope reports whether the sender, the reply-to addresses and the subject are the same for all values.
func (c *Compiled) SameEnvelope() bool {
	return c.from.Fixed() && c.subject.Fixed() &&
		!slices.ContainsFunc(c.replyTo, func(m mailbox) bool { return !m.Fixed() })
}

func (c *Compiled) templates() (all []*render.Template) {
	all = append(all, &c.from.Template, &c.subject)
	for i := range c.replyTo {
		all = append(all, &c.replyTo[i].Template)
	}
	for i := range c.values {
		all = append(all, &c.values[i])
	}
	return append(all, c.bodyTemplates()...)
}

// bodyTemplates returns the templates for the HTML and for the text, if they were given.
func (c *Compiled) bodyTemplates() (all []*render.Template) {
	if c.html != nil {
		all = append(all, &c.html.Template)
	}
	if c.text != nil {
		all = append(all, c.text)
	}
	return all
}

// CheckPlaceholders returns an Invalid fault if a field's text has three opening braces that do not begin a well-formed
// placeholder.
func CheckPlaceholders(field, text string) error {
	if err := render.Check(text); err != nil {
		return fault.Invalidf(field, "The `%s` field has a placeholder that is not well formed: %s. Write "+
			"{{{NAME}}} or {{{NAME|fallback}}}.", field, err).Because(err)
	}
	return nil
}
