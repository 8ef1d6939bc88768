// Package templates keeps the templates that emails are sent with: their versions, and the variables that they declare.
//
// # Invariants
//
// A version never changes. It owns a content (see package content), so an email that was accepted with a version has
// that text for as long as it is kept, whatever happens to the template afterwards. The newest version is the one that
// is edited: each change of the text or of the variables makes another. Emails are sent with the version that was
// published last. Versions are numbered from 1, and none is left out.
//
// Large texts are read and filled only once there is memory for them, which teams share. What is returned with such a
// text has a method Close, to be called when it is not needed any more.
//
// A change is written only if the template is as it was when the change was worked out, so none is lost: each change
// makes the revision in the template's row greater, and one that finds another revision is worked out again.
//
// # When it fails
//
// A template of another team is a NotFound fault, as one that does not exist. Errors of the database are returned, and
// nothing was changed then.
//
// # What it does not do
//
// It does not send: package emails asks it for what was published. It fills only declared variables; the values of
// contacts are the concern of who writes to contacts.
package templates

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/sending/content"
)

// Limits of a template.
const (
	MaxName         = 255     // characters
	MaxSize         = 4 << 20 // octets of the HTML and the text together
	MaxPlaceholders = 10_000
	MaxVariables    = 50

	maxAlias    = 100 // characters
	maxReplyTo  = 50  // addresses
	maxKey      = 50  // characters of a variable's key
	maxSubject  = content.MaxSubject
	maxMailbox  = 2000     // octets of an address with its display name
	maxRendered = 10 << 20 // octets of the HTML and the given text together that Render makes
	maxCompared = 2 << 20  // octets of the HTML and the texts of two versions together that Compare compares
	maxLines    = 20_000   // and lines of the HTML, and of the texts: each takes some 250 octets of memory
)

// Template is a template without what it says, which is in its versions.
type Template struct {
	ID          string
	TeamID      string
	Name        string
	Alias       string // empty when it has none
	CurrentID   string // the newest version
	PublishedID string // the version that emails are sent with; empty before the first is published
	CreatedAt   time.Time
	UpdatedAt   time.Time
	PublishedAt time.Time // zero before the first version is published

	versions int64 // the number of the newest version
	revision int64
}

// Published reports whether emails can be sent with the template.
func (t *Template) Published() bool { return t.PublishedID != "" }

// HasUnpublished reports whether there is a version newer than the published one.
func (t *Template) HasUnpublished() bool { return t.PublishedID != t.CurrentID }

// Version is one version of a template.
type Version struct {
	ID          string
	TemplateID  string
	TeamID      string
	Number      int64 // from 1
	CreatedAt   time.Time
	PublishedAt time.Time // when it was published last; zero for never

	// Set only for a single version, not in lists.
	Variables []Variable
	Text

	contentID   string
	reservation // by the text
}

// Text is what a version says. All of it may have placeholders, see package render.
type Text struct {
	From    string // empty when not given
	Subject string // empty when not given
	ReplyTo []string
	HTML    string
	Plain   *string // nil when not given, so that it is made from the HTML; empty for no text part
}

// PlainOrConverted returns the text part, made from the HTML if none was given.
func (t *Text) PlainOrConverted() string {
	if t.Plain != nil {
		return *t.Plain
	}
	return htmltext.FromHTML(t.HTML)
}

func textOf(c *content.Content) Text {
	t := Text{From: c.From, Subject: c.Subject, ReplyTo: c.ReplyTo, Plain: c.Text}
	if c.HTML != nil {
		t.HTML = *c.HTML
	}
	return t
}

func (t *Text) content(teamID string) *content.Content {
	return &content.Content{TeamID: teamID, From: t.From, Subject: t.Subject, ReplyTo: t.ReplyTo, HTML: &t.HTML,
		Text: t.Plain, Kept: true}
}

// textField is one text of a version, by the name of its field.
type textField struct{ field, text string }

// textFields returns all texts that may have placeholders.
func (t *Text) textFields() []textField {
	all := []textField{{"from", t.From}, {"subject", t.Subject}, {"html", t.HTML}}
	for _, address := range t.ReplyTo {
		all = append(all, textField{"reply_to", address})
	}
	if t.Plain != nil {
		all = append(all, textField{"text", *t.Plain})
	}
	return all
}

// NewTemplate is a template to be created.
type NewTemplate struct {
	Name      string
	Alias     string // empty for none
	From      string
	Subject   string
	ReplyTo   []string
	HTML      *string // nil when not given, which is refused
	Text      *string // see Text.Plain
	Variables []Declaration
}

// Change is a change of a template; nil leaves a value unchanged.
type Change struct {
	Name      *string
	Alias     *string // empty for none
	From      *string
	Subject   *string
	ReplyTo   *[]string
	HTML      *string
	Text      **string // to nil: it is made from the HTML again
	Variables *[]Declaration
}

// copySuffix ends the name of a duplicate.
const copySuffix = " (Copy)"

// copyName returns the name of a duplicate, shortened to the limit.
func copyName(name string) string {
	runes := []rune(name)
	if most := MaxName - len(copySuffix); len(runes) > most {
		name = strings.TrimSpace(string(runes[:most]))
	}
	return name + copySuffix
}
