// Package emails accepts emails to be sent, keeps them and their states, and provides what delivery needs of them.
//
// # Invariants
//
// An email is accepted in one transaction that writes the email, its bodies and recipients, its first event, its
// idempotency record, and its jobs: one for each destination domain, or one for each recipient if it is tracked or has
// a topic, or one that enters those later, when the email is scheduled or an attachment must be fetched first. An email
// that shares its content with others ([Service.Enqueue]) has no body of its own. When Send returns without an error,
// all of that is on disk. An accepted email is never lost: it ends as delivered, bounced, failed, suppressed or
// canceled, and until then there is a job for it.
//
// # States
//
//	scheduled < queued < sent < delivery_delayed < delivered < opened < clicked
//	  < bounced, failed, suppressed < canceled < complained
//
// Each state has a rank, as listed, and a state is replaced only by one of a higher rank, so events may arrive in any
// order and more than once; most emails skip most states. The states scheduled, sent and canceled are of the whole
// email only. Otherwise the state of an email is the highest-ranked state of its recipients, except that it becomes
// suppressed only when all its recipients are, and opened or clicked also by what cannot be attributed to one of them.
// A recipient becomes opened or clicked only after the email was delivered to it.
//
// # When it fails
//
// A Send that fails has accepted nothing, and its idempotency key is free again. The exception is a database that is
// lost during the commit: the error then says that the email may have been accepted. Attachments are stored before the
// transaction; those that no email has are deleted by SweepFiles. The jobs of this package are retried without end when
// the database or the file store fails; an email fails only for reasons of its own, such as an attachment that cannot
// be fetched or a sender that may no longer send.
//
// # Topics
//
// An email that has a topic goes only to those who want to read about it (see package contacts). Each recipient gets a
// message of its own, by a job of its own. One that must not be mailed fails by itself; the email fails only if it goes
// to nobody.
//
// # What it does not do
//
// It does not speak SMTP or sign: delivery does. Attachments given by path are fetched after the email is accepted.
package emails

import (
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
)

// State is the latest event of an email or of a recipient, as the API shows it.
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

// rank orders the states: a state is replaced only by one of a higher rank (API reference section 8.8).
var rank = map[State]int{Scheduled: 5, Queued: 10, Sent: 20, Delayed: 30, Delivered: 40, Opened: 50, Clicked: 60,
	Bounced: 70, Failed: 70, Suppressed: 70, Canceled: 80, Complained: 90}

// settled is the rank from which nothing more is sent to a recipient.
var settled = rank[Delivered]

// stateOf maps an event to the state that it leads to.
var stateOf = map[events.Type]State{events.EmailScheduled: Scheduled, events.EmailQueued: Queued,
	events.EmailSent:    Sent,
	events.EmailDelayed: Delayed, events.EmailDelivered: Delivered, events.EmailOpened: Opened,
	events.EmailClicked: Clicked,
	events.EmailBounced: Bounced, events.EmailFailed: Failed, events.EmailSuppressed: Suppressed,
	events.EmailCanceled: Canceled, events.EmailComplained: Complained}

// Limits of one email (API reference section 8.1).
const (
	MaxRecipients  = 50                  // in each of to, cc and bcc
	MaxBatch       = 100                 // emails in one request
	MaxTags        = 75                  //
	MaxTagLength   = 256                 // characters of a tag's name and of its value
	MaxAttachments = 100                 // each may become a file in the store, or a download
	MaxHeaders     = 100                 // custom header fields
	MaxSubject     = content.MaxSubject  // octets
	MaxAhead       = 30 * 24 * time.Hour // of scheduled_at
	maxPast        = time.Minute         // a scheduled_at at most this long ago means now
	maxContentID   = 127                 // characters
	maxFilename    = 255                 // octets
	maxPath        = 2048                // octets
	maxHeaderSize  = 64 << 10            // octets of all custom headers
	maxName        = 320                 // octets of an address with its display name; longer ones are not shown
	keyLifetime    = 24 * time.Hour      // of an idempotency key
	shareDefault   = 48 * time.Hour      // also the longest
)

// Tag is a label that a caller gives an email.
type Tag struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Private is the tag by which the system marks an email whose text is for its recipient alone, such as one with a link
// that signs in: its team cannot read the text, and it is sent although an earlier email to the address has bounced.
// Others may use the tag, and it means nothing then.
var Private = Tag{"postrider", "private"}

// isPrivate reports whether the system marked an email as [Private].
func isPrivate(by teams.ActorKind, tags []Tag) bool {
	return by == teams.SystemActor && slices.Contains(tags, Private)
}

// Upload is an attachment as a caller gives it: with exactly one of Content and Path.
type Upload struct {
	Filename    string
	ContentType string
	ContentID   string
	Content     []byte
	HasContent  bool
	Path        string
}

// Send is an email that a caller wants sent. Addresses may be bare or have a display name.
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
	TemplateID  string // id or alias; HasTemplate distinguishes an empty one from none
	HasTemplate bool
	Variables   map[string]scalar.Value // of the template

	template *templateVersion // set by byTemplate
	values   render.Values    // of the template's placeholders

	// Broken is the error of a rule that was already found broken while the request was decoded. The email is refused with
	// it.
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
	ContactID   string // to whom a broadcast or an automation sent it; "" for other emails
	LastEvent   State
	ScheduledAt time.Time // zero when not scheduled
	CreatedAt   time.Time

	// Set only for a single email, not in lists.
	HTML   *string
	Text   *string
	bulk   bool
	isRaw  bool // its caller composed it
	shared shared

	hasHTML         bool // in a body of its own that we compose
	onePerRecipient bool // each recipient gets a message of its own
}

// canUnsubscribe reports whether the recipients of an email have a link to leave: its topic, or all that has one and all
// broadcasts and automations, if it has none itself.
func (e *Email) canUnsubscribe() bool {
	return e.TopicID != "" || e.BroadcastID != "" || e.ContactID != ""
}

// Recipient is one envelope address of an email, with its state.
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
	Size        int64 // octets; 0 until its path is fetched
	blobKey     string
	path        string
}

// Inline reports whether the attachment is shown within the HTML.
func (a *Attachment) Inline() bool { return a.ContentID != "" }

// Attempt is one try to deliver an email to a destination, with the SMTP conversation.
type Attempt struct {
	ID           string
	TeamID       string
	EmailID      string
	Destination  string
	Recipients   []string
	Host         string // name and address of the host; empty when none was reached
	TLS          string // empty when the connection was not encrypted
	Outcome      string // delivered, delayed, bounced, mixed or unknown
	Reply        string
	Conversation string
	StartedAt    time.Time
	Duration     time.Duration
	NextAt       time.Time // zero when there is no next try
}
