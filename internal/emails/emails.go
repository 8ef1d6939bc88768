// Package emails is the sent email: accepting it, its states, and what delivery needs to know of it.
//
// # Invariants
//
// An email is accepted in one transaction that writes the email, its bodies and recipients, its first event, its
// idempotency record, and the jobs that will deliver it, one for each destination domain. When Send returns without an
// error, all of that is on disk. Nothing that was accepted is forgotten: an email ends as delivered, bounced, failed,
// suppressed or canceled, and until then a job for it waits or is in hand.
//
// # States
//
//	scheduled ──► queued ──► sent ──► delivery_delayed ──► delivered ──► opened ──► clicked
//	    │            │         └──────────────┴──► bounced                              any ──► complained
//	    └► canceled  └► failed, suppressed
//
// Each state has a rank, and a state gives way only to one of higher rank, so events may come in any order and twice.
// An email's state is that of the recipient to whom most has happened; suppressed only when all its recipients are.
//
// # What it does not do
//
// It does not speak SMTP, compose or sign: delivery does. It fetches nothing before it has accepted.
package emails

import (
	"time"

	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/teams"
)

// State is an email's or a recipient's latest event, as the API shows it.
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

// rank orders states; a state gives way only to a higher one (API reference section 8.8).
var rank = map[State]int{Scheduled: 5, Queued: 10, Sent: 20, Delayed: 30, Delivered: 40, Opened: 50, Clicked: 60,
	Bounced: 70, Failed: 70, Suppressed: 70, Canceled: 80, Complained: 90}

// settled is the rank from which nothing more is sent to a recipient.
var settled = rank[Delivered]

// stateOf is the state that an event brings.
var stateOf = map[events.Type]State{events.EmailScheduled: Scheduled, events.EmailQueued: Queued, events.EmailSent: Sent,
	events.EmailDelayed: Delayed, events.EmailDelivered: Delivered, events.EmailOpened: Opened, events.EmailClicked: Clicked,
	events.EmailBounced: Bounced, events.EmailFailed: Failed, events.EmailSuppressed: Suppressed,
	events.EmailCanceled: Canceled, events.EmailComplained: Complained}

// Limits of one email (API reference section 8.1).
const (
	MaxRecipients  = 50                      // in each of to, cc and bcc
	MaxBatch       = 100                     // emails in one request
	MaxTags        = 75                      //
	MaxTagLength   = 256                     // characters of a tag's name and of its value
	MaxAttachments = 100                     // each is a file, and each with a path is fetched
	MaxHeaders     = 100                     // custom ones
	MaxSubject     = 998                     // octets
	MaxAhead       = 30 * 24 * time.Hour     // of scheduled_at
	maxPast        = time.Minute             // a time that has just gone by means now
	maxContentID   = 127                     // characters
	maxFilename    = 255                     // octets
	maxPath        = 2048                    // octets
	maxHeaderSize  = 64 << 10                // octets of all custom headers
	maxName        = 320                     // octets of a display form with its address, beyond which nobody shows it
	keyLifetime    = 24 * time.Hour          // of an idempotency key
	shareDefault   = 48 * time.Hour          // also the longest
	linkLifetime   = time.Hour               // of a download link
	testDomains    = "example.com, test.com" // recipients there are a mistake
)

// Tag is a label that a caller gives an email.
type Tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Upload is an attachment as a caller gives it: exactly one of Content and Path.
type Upload struct {
	Filename    string
	ContentType string
	ContentID   string
	Content     []byte
	HasContent  bool
	Path        string
}

// Send is what a caller asks to be sent. Addresses are in the forms that people write.
type Send struct {
	From        string
	To          []string
	Cc          []string
	Bcc         []string
	ReplyTo     []string
	Subject     string
	HTML        *string // nil when not given
	Text        *string // nil when not given; empty for no text part
	Headers     []message.Field
	Attachments []Upload
	Tags        []Tag
	ScheduledAt string
	TopicID     string
	TemplateID  string // id or alias; HasTemplate tells an empty one from none
	HasTemplate bool

	// Broken is a rule that was found broken already when the request was read. The email is refused for it.
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
	LastEvent   State
	ScheduledAt time.Time // zero when not scheduled
	CreatedAt   time.Time

	// Only where a single email is read.
	HTML   *string
	Text   *string
	bulk   bool
	shared shared
}

// Recipient is one envelope address of an email and what became of it.
type Recipient struct {
	Kind      string // to, cc or bcc
	Address   string
	State     State
	UpdatedAt time.Time
}

// Attachment is a file of an email.
type Attachment struct {
	ID          string
	EmailID     string
	TeamID      string
	Filename    string
	ContentType string
	ContentID   string
	Size        int64 // octets; 0 while its path is not fetched
	blobKey     string
	path        string
}

// Inline reports whether the attachment is shown within the HTML.
func (a *Attachment) Inline() bool { return a.ContentID != "" }

// Attempt is one try to deliver an email to a destination, with what was said.
type Attempt struct {
	ID           string
	TeamID       string
	EmailID      string
	Destination  string
	Recipients   []string
	Host         string // name and address spoken to; empty when none was reached
	TLS          string // empty when in the clear
	Outcome      string // delivered, delayed, bounced, mixed or unknown
	Reply        string
	Conversation string
	StartedAt    time.Time
	Duration     time.Duration
	NextAt       time.Time // zero when there is no next try
}
