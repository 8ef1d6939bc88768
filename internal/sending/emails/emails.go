// Package emails accepts emails for sending, stores them with their states, and provides the data needed to deliver
// them.
//
// # Invariants
//
// Each email is accepted in one transaction. The transaction that accepts an email writes the email, its bodies and
// recipients, its first event, its idempotency record, and its jobs. When Send returns without an error, all database
// rows for the email are on disk.
//
// An email has one delivery job for each destination domain. An email that is tracked or has a topic has one delivery
// job for each recipient. If an email is scheduled, or an attachment must be fetched first, another job enqueues the
// delivery jobs later. Emails that share content ([Service.Enqueue]) do not have bodies of their own.
//
// An accepted email is never lost. Every email ends up delivered, bounced, failed, suppressed or canceled. An email has
// a job until it reaches one of its final states.
//
// # States
//
//	scheduled < queued < sent < delivery_delayed < delivered < opened < clicked
//	  < bounced, failed, suppressed < canceled < complained
//
// Each state has a rank; the list above is in order of rank. A state is replaced only by a state with a higher rank.
// Events may therefore arrive in any order and more than once. Most emails skip most states.
//
// The states scheduled, sent and canceled apply only to an email as a whole. Apart from these states, an email has the
// highest-ranked state of its recipients, with two exceptions. The only recipient of an email has no row, and has the
// state of the email; a canceled email's only recipient is canceled. An email is suppressed only if all its recipients
// are suppressed. An open or a click that cannot be attributed to one recipient changes only the state of the email. A
// recipient's state becomes opened or clicked only after delivery.
//
// # Failures
//
// If Send fails, no email was accepted, and the idempotency key can be used again. If the database connection is lost
// during the commit, the error says that the email may have been accepted.
//
// Attachments are stored before the transaction starts. SweepFiles deletes the files of attachments that belong to no
// email. The jobs in this package are retried without limit if the database or the file store fails. An outage of the
// database or the file store therefore never makes an email fail. An email does fail, for example, if an attachment
// cannot be fetched or if its sender may no longer send.
//
// # Topics
//
// An email with a topic is sent only to recipients who subscribe to that topic (see package contacts). Each recipient
// of an email with a topic gets a separate message and job. For a recipient who does not subscribe, the state becomes
// failed; the other recipients are not affected. An email with a topic fails only if it is sent to none of its
// recipients.
//
// # Out of scope
//
// The package neither signs messages nor sends them by SMTP; package delivery does both. Attachments specified by a
// path are fetched after the email is accepted.
package emails

import (
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/templates"
)

// State is the state of an email or of a recipient, in the form that the API returns.
type State string

const (
	Scheduled  State = "scheduled"
	Queued     State = "queued"
	Sent       State = "sent"
	Delayed    State = "delivery_delayed"
	Delivered  State = "delivered"
	Opened     State = "opened"
	Clicked    State = "clicked"
	Bounced    State = "bounced"
	Failed     State = "failed"
	Suppressed State = "suppressed"
	Canceled   State = "canceled"
	Complained State = "complained"
)

// states holds the numbers of the states in emails.last_event and email_recipients.state. A state has the number of the
// type of its event in [events.Types], because packages that cannot import this one compare them.
var states = db.NewNames("emails.last_event", map[State]int16{Scheduled: 1, Queued: 2, Sent: 3, Delayed: 4,
	Delivered: 5, Opened: 6, Clicked: 7, Bounced: 8, Failed: 9, Suppressed: 10, Canceled: 11, Complained: 12})

// unknownState is the prefix of states that this release does not know.
const unknownState = "unknown_state_"

// readState returns a state that was read from the database, for those who look at an email. A state that a newer
// release has written, while nodes of both releases run, gets a name with its number, so that a list with the email can
// still be read.
func readState(number int16) State {
	name, err := states.Name(number)
	if err != nil {
		return State(fmt.Sprintf("%s%d", unknownState, number))
	}
	return name
}

// recipientKinds holds the numbers of the kinds in email_recipients.kind.
var recipientKinds = db.NewNames("email_recipients.kind", map[string]int16{"to": 1, "cc": 2, "bcc": 3})

// rank defines the order of the states. A state is replaced only by a state with a higher rank (API reference section
// 8.8).
var rank = map[State]int{Scheduled: 5, Queued: 10, Sent: 20, Delayed: 30, Delivered: 40, Opened: 50, Clicked: 60,
	Bounced: 70, Failed: 70, Suppressed: 70, Canceled: 80, Complained: 90}

// The ranks of the state Delayed if a recipient is withheld because of the sender's domain. The rank rankWithheld means
// that no mail host has been contacted. It is lower than the rank of Sent, so that the first attempt records that the
// email is sent. When the domain is back, rankReleased replaces it, and the rank of Delayed replaces rankRetryWithheld.
const (
	rankWithheld      = 15
	rankReleased      = 16
	rankRetryWithheld = 31
)

// settled is the lowest rank at which no more messages are sent to a recipient.
var settled = rank[Delivered]

// stateOf maps each event type to the state that results from the event.
var stateOf = map[events.Type]State{events.EmailScheduled: Scheduled, events.EmailQueued: Queued,
	events.EmailSent:    Sent,
	events.EmailDelayed: Delayed, events.EmailDelivered: Delivered, events.EmailOpened: Opened,
	events.EmailClicked: Clicked,
	events.EmailBounced: Bounced, events.EmailFailed: Failed, events.EmailSuppressed: Suppressed,
	events.EmailCanceled: Canceled, events.EmailComplained: Complained}

// These are the limits for one email (API reference section 8.1).
const (
	MaxRecipients  = 50                  // maximum number of recipients in each of the fields to, cc and bcc
	MaxBatch       = 100                 // maximum number of emails in one request
	MaxTags        = 75                  //
	MaxTagLength   = 256                 // maximum length of a tag's name, and of its value, in characters
	MaxAttachments = 100                 // each attachment may require a stored file or a download
	MaxHeaders     = 100                 // custom header fields
	MaxSubject     = content.MaxSubject  // bytes
	MaxAhead       = 30 * 24 * time.Hour // the latest scheduled_at
	maxPast        = time.Minute         // how far scheduled_at may be in the past
	maxContentID   = 127                 // characters
	maxFilename    = 255                 // bytes
	maxPath        = 2048                // bytes
	maxHeaderSize  = 64 << 10            // maximum total size of all custom headers, in bytes
	maxName        = 320                 // maximum size of an address with its display name, in bytes
	keyLifetime    = 24 * time.Hour      // lifetime of an idempotency key
	shareDefault   = 48 * time.Hour      // also the maximum
)

// Tag is a label, with a name and a value, that a sender attaches to an email.
type Tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Private is the tag with which the system marks emails that only the recipient may read, such as those with sign-in
// links. The team cannot read a private email's text, and the email is sent even if an earlier email to the address has
// bounced. The tag has no effect on emails sent by teams.
var Private = Tag{"postrider", "private"}

// Forwarded is the tag of emails that a rule forwarded. It lets receivers of webhooks distinguish them from the team's
// own emails, and has no other effect.
var Forwarded = Tag{"postrider", "forwarded"}

// IsForwarded reports whether a forwarding rule sent the email. Teams may use the same tag.
func (e *Email) IsForwarded() bool {
	return e.Actor.Kind == teams.SystemActor && slices.Contains(e.Tags, Forwarded)
}

// forwardRule returns the id of the rule that forwarded an email, or "". The actor of a forwarded email is the system,
// with the id of the rule. For other emails of the system, the actor has no id.
func forwardRule(by teams.ActorRef) string {
	if by.Kind == teams.SystemActor {
		return by.ID
	}
	return ""
}

// isPrivate reports whether the system marked an email as [Private].
func isPrivate(by teams.ActorKind, tags []Tag) bool {
	return by == teams.SystemActor && slices.Contains(tags, Private)
}

// Upload is an attachment in a request. Exactly one of Content and Path is set.
type Upload struct {
	Filename    string
	ContentType string
	ContentID   string
	Content     []byte
	HasContent  bool
	Path        string
}

// Send is a request to send one email. Each address may have a display name.
type Send struct {
	From        string
	To          []string
	Cc          []string
	Bcc         []string
	ReplyTo     []string
	Subject     string
	HTML        *string // nil if not specified
	Text        *string // nil if not specified; "" for no text part
	Headers     []message.Field
	Attachments []Upload
	Tags        []Tag
	ScheduledAt string
	TopicID     string
	TemplateID  string // id or alias; HasTemplate distinguishes an empty value from a missing one
	HasTemplate bool
	Variables   templates.Given // of the template

	template *templateVersion // set by resolveTemplate
	values   render.Values    // values for the template's placeholders
	contact  render.Values    // values of contact fields; set by MailingByTemplate

	// Broken is a rule violation found by the decoder of the request. If Broken is not nil, the email is refused with this
	// fault.
	Broken error
}

// Email is a sent email.
type Email struct {
	ID          string
	TeamID      string
	Actor       teams.ActorRef // who sent it
	DomainID    string
	MessageID   string // with angle brackets
	From        string
	To          []string
	Cc          []string
	Bcc         []string
	ReplyTo     []string
	Subject     string
	Tags        []Tag
	TopicID     string
	TemplateID  string
	BroadcastID string
	ContactID   string // id of the recipient's contact, if a broadcast or an automation sent the email
	LastEvent   State
	ScheduledAt time.Time // zero if the email is not scheduled
	CreatedAt   time.Time

	// These fields are set only when a single email is read, not in list results.
	HTML   *string
	Text   *string
	bulk   bool
	isRaw  bool // whether the sender composed the message
	shared shared

	// only is the envelope address of the email's only recipient, whose state is the email's state, and updatedAt is the
	// time of the last change of that state. If the table email_recipients holds the recipients, only is "".
	only      string
	updatedAt time.Time

	hasHTML         bool // whether the email has its own HTML body, and this package composes the message
	onePerRecipient bool // whether each recipient gets a separate message
}

// canUnsubscribe reports whether the email has unsubscribe links. The links apply to the email's topic. If the email
// has no topic, the links apply to all of the team's broadcasts and automations.
func (e *Email) canUnsubscribe() bool {
	return e.TopicID != "" || e.BroadcastID != "" || e.ContactID != ""
}

// onlyRecipient returns the recipient of an email that has no rows of recipients.
func (e *Email) onlyRecipient() Recipient {
	to := Recipient{Kind: "bcc", Address: e.only, State: recipientState(e.LastEvent), UpdatedAt: e.updatedAt}
	a, err := message.ParseAddress(e.only)
	if err != nil {
		return to
	}
	for _, f := range []struct {
		kind string
		list []string
	}{{"to", e.To}, {"cc", e.Cc}} {
		for _, text := range f.list {
			if b, err := message.ParseAddress(text); text == e.only || err == nil && b.Key() == a.Key() {
				to.Kind = f.kind
				return to
			}
		}
	}
	return to
}

// recipientState returns the state of an email's only recipient. An email is sent as a whole, before the outcome for
// its recipient is known.
func recipientState(s State) State {
	if s == Sent {
		return Queued
	}
	return s
}

// onlyPending is [pending] for an email that has no rows of recipients.
func onlyPending(e *Email, domain string) ([]recipient, error) {
	a, err := message.ParseAddress(e.only)
	if err != nil {
		return nil, err
	}
	if rank[e.LastEvent] >= settled || domain != "" && a.Domain != domain {
		return nil, nil
	}
	return []recipient{{kind: e.onlyRecipient().Kind, Address: a}}, nil
}

// Recipient is one envelope address of an email, with its state.
type Recipient struct {
	Kind      string // to, cc or bcc
	Address   string
	State     State
	UpdatedAt time.Time
}

// Attachment is a file attached to an email.
type Attachment struct {
	ID          string
	EmailID     string
	TeamID      string
	Filename    string
	ContentType string
	ContentID   string
	Size        int64 // bytes; 0 until the file is fetched
	blobKey     string
	path        string
}

// Inline reports whether the HTML body can refer to the attachment by its content id.
func (a *Attachment) Inline() bool { return a.ContentID != "" }
