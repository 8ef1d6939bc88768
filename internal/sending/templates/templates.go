// Package templates manages the templates that emails are sent with: their versions, and the variables that these
// declare.
//
// # Invariants
//
// A version never changes. A version owns a content (see package content), so an email that was accepted with a version
// keeps its text, whatever happens to the template. Editing applies to the newest version: each change of the text or
// of the variables creates another one. Emails are sent with the published version. Versions are numbered from 1
// without gaps.
//
// Large texts are read and filled only when there is memory for them; teams share that memory. A result with such a
// text has a method Close, which the caller calls when it no longer needs the text.
//
// A change is written only if the template still has the revision that the change was computed from, so no change is
// lost. Each change increments the revision. If the revision has changed, the change is computed again.
//
// # When it fails
//
// A template of another team is a NotFound fault, like a missing one. Errors of the database are returned, and then
// nothing has changed.
//
// # What it does not do
//
// The package does not send: package emails gets the published version from it. It fills only declared variables:
// packages that write to contacts fill contact data.
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
	MaxSize         = 4 << 20 // bytes of the HTML and the text together
	MaxPlaceholders = 10_000
	MaxVariables    = 50

	maxAlias    = 100 // characters
	maxReplyTo  = 50  // addresses
	maxKey      = 50  // characters of a variable's key
	maxSubject  = content.MaxSubject
	maxMailbox  = 2000     // bytes of an address with display name
	maxRendered = 10 << 20 // bytes of HTML and given text together that Render produces
	maxCompared = 2 << 20  // bytes of HTML and text of both versions together in Compare
	maxLines    = 20_000   // lines of the HTML, or of the texts, of both versions in Compare; each takes about 250 bytes
)

// Template is a template without its texts, which its versions have.
type Template struct {
	ID          string
	TeamID      string
	Name        string
	Alias       string // empty if the template has no alias
	CurrentID   string // the newest version
	PublishedID string // the version that emails are sent with; empty before the first is published
	CreatedAt   time.Time
	UpdatedAt   time.Time
	PublishedAt time.Time // zero if never published

	versions int64 // the number of the newest version
	revision int64
}

// Published reports whether emails can be sent with the template.
func (t *Template) Published() bool { return t.PublishedID != "" }

// HasUnpublished reports whether the newest version is not the published one.
func (t *Template) HasUnpublished() bool { return t.PublishedID != t.CurrentID }

// Version is one version of a template.
type Version struct {
	ID          string
	TemplateID  string
	TeamID      string
	Number      int64 // from 1
	CreatedAt   time.Time
	PublishedAt time.Time // time of the latest publication; zero if never published

	// Set only for a single version, not in lists.
	Variables []Variable
	Text

	contentID   string
	reservation // memory of the text
}

// Text holds the texts of a version. All texts may have placeholders, see package render.
type Text struct {
	From    string // empty when not given
	Subject string // empty when not given
	ReplyTo []string
	HTML    string
	Plain   *string // nil: converted from the HTML; empty: no text part
}

// PlainOrConverted returns the text part, converted from the HTML if none was given.
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

// textField is a text of a version with the name of its API field.
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
	HTML      *string // nil if not given, which is an error
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
	Text      **string // a nil value: converted from the HTML again
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
