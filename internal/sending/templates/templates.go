// Package templates manages templates for emails. A template has versions, and each version declares variables.
//
// # Invariants
//
// A version never changes. Package content stores the content of a version. An email that is accepted with a version
// therefore keeps its content even if the template is changed or deleted. Changes apply to the newest version: each
// change to the content or the variables creates a new version. Emails are sent with the published version. Versions
// are numbered consecutively, starting from 1.
//
// Large texts are read and rendered only when memory for them can be reserved from a pool that all teams share. A
// result that may contain large texts has a method Close, which the caller must call when the result is no longer
// needed.
//
// Each change increments the template's revision. A change is written only if the template still has the revision on
// which the change was based, so no change is lost. If the template's revision has changed, the change is computed
// again.
//
// # Failures
//
// An operation on another team's template returns a NotFound fault, as if the template did not exist. If an operation
// returns a database error, it has changed nothing.
//
// # Out of scope
//
// The package does not send emails; package emails reads published versions from package templates. The package renders
// only declared variables. The packages that send email to contacts supply the fields of contacts.
package templates

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/sending/content"
)

// These are the limits for a template.
const (
	MaxName         = 255     // characters
	MaxSize         = 4 << 20 // maximum size of the HTML and the text together, in bytes
	MaxPlaceholders = 10_000
	MaxVariables    = 50

	maxAlias    = 100 // characters
	maxReplyTo  = 50  // addresses
	maxKey      = 50  // maximum length of a variable's key, in characters
	maxSubject  = content.MaxSubject
	maxMailbox  = 2000     // maximum size of an address with its display name, in bytes
	maxRendered = 10 << 20 // maximum total size of the HTML and the text that Render produces, in bytes
	maxCompared = 2 << 20  // maximum total size of the HTML and text of both versions in Compare, in bytes
	maxLines    = 20_000   // maximum lines per field of both versions in Compare; each line uses about 250 bytes of memory
)

// Template is a template without its content, which is part of its versions.
type Template struct {
	ID          string
	TeamID      string
	Name        string
	Alias       string // empty if the template has no alias
	CurrentID   string // the newest version
	PublishedID string // id of the version with which emails are sent; empty if no version has been published
	CreatedAt   time.Time
	UpdatedAt   time.Time
	PublishedAt time.Time // zero if the template has never been published

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
	PublishedAt time.Time // when the version was last published; zero if it was never published

	// These fields are set only when a single version is read, not in list results.
	Variables []Variable
	Text

	contentID   string
	reservation // memory reserved for the content
}

// Text holds the content of a version. All fields of a Text may contain placeholders (see package render).
type Text struct {
	From    string // empty if not specified
	Subject string // empty if not specified
	ReplyTo []string
	HTML    string
	Plain   *string // if nil, derived from the HTML; if empty, no text part
}

// PlainOrConverted returns the plain text part. If no text was specified, the plain text part is derived from the HTML.
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

// textField is one string in a version's content, with the name of its API field.
type textField struct{ field, text string }

// textFields returns all strings that may contain placeholders.
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

// NewTemplate is a request to create a template.
type NewTemplate struct {
	Name      string
	Alias     string // empty for none
	From      string
	Subject   string
	ReplyTo   []string
	HTML      *string // required; nil if not specified
	Text      *string // see Text.Plain
	Variables []Declaration
}

// Change is a request to change a template. If a field is nil, the corresponding value stays unchanged.
type Change struct {
	Name      *string
	Alias     *string // empty for none
	From      *string
	Subject   *string
	ReplyTo   *[]string
	HTML      *string
	Text      **string // if *Text is nil, the text is derived from the HTML again
	Variables *[]Declaration
}

// copySuffix is appended to the name of a duplicate.
const copySuffix = " (Copy)"

// copyName returns the name for a template's duplicate, shortened to the maximum length.
func copyName(name string) string {
	runes := []rune(name)
	if most := MaxName - len(copySuffix); len(runes) > most {
		name = strings.TrimSpace(string(runes[:most]))
	}
	return name + copySuffix
}
