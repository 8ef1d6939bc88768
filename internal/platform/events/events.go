// Package events records changes to emails, domains, suppressions and contacts. [Recorder.Record] stores an event in
// the transaction that makes the change.
//
// Record writes the events of sent emails to their timelines, and then calls each listener in the same transaction. The
// first event of an email that is queued when it is accepted has no row, and neither has the event of a received email:
// the emails' own rows say the same. Listeners advance the email's state, suppress an address after a hard bounce or a
// complaint, and queue webhooks. Listeners let packages in lower layers call packages in higher layers. Package node
// registers the listeners, which run in the order of registration. Before the commit, a listener must not have effects
// outside the database.
//
// # Failures
//
// If a listener or a statement fails, Record returns the error, and the caller must abort its transaction. In this case
// the event is not stored, and the caller repeats the action that caused the event.
//
// # Out of scope
//
// The package does not decide which event occurred and does not send emails or webhooks.
package events

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Type is the name of an event, as it appears in webhooks.
type Type string

const (
	// EmailQueued appears only in the timeline, not in webhooks. If an email is queued when it is accepted, the event has
	// the email's id.
	EmailQueued     Type = "email.queued"
	EmailScheduled  Type = "email.scheduled"
	EmailCanceled   Type = "email.canceled" // event that appears only in the timeline, not in webhooks
	EmailSent       Type = "email.sent"
	EmailDelivered  Type = "email.delivered"
	EmailDelayed    Type = "email.delivery_delayed"
	EmailBounced    Type = "email.bounced"
	EmailComplained Type = "email.complained"
	EmailOpened     Type = "email.opened"
	EmailClicked    Type = "email.clicked"
	EmailFailed     Type = "email.failed"
	EmailSuppressed Type = "email.suppressed"
	// EmailUnsubscribed appears only in the timeline and in counts; webhooks send contact.updated for an unsubscription.
	EmailUnsubscribed Type = "email.unsubscribed"
	// EmailReceived events have Data of type *Received and an empty EmailID. They have no row, because the row of the
	// received email says the same.
	EmailReceived Type = "email.received"

	DomainCreated Type = "domain.created"
	DomainUpdated Type = "domain.updated"
	DomainDeleted Type = "domain.deleted"

	// DomainTransportFailed means that senders can no longer obey the domain's MTA-STS policy, and
	// DomainTransportRecovered that they can again. Their Data is a *Transport.
	DomainTransportFailed    Type = "domain.transport_failed"
	DomainTransportRecovered Type = "domain.transport_recovered"

	SuppressionAdded   Type = "suppression.added"
	SuppressionRemoved Type = "suppression.removed"

	ContactCreated Type = "contact.created"
	ContactUpdated Type = "contact.updated"
	ContactDeleted Type = "contact.deleted"

	BroadcastPaused Type = "broadcast.paused" // paused for too many bounces or complaints, not by a user

	ApprovalRequested Type = "approval.requested"
	ApprovalDecided   Type = "approval.decided"
)

// Types holds the numbers of the types in email_events.type and in the counters of metrics. The states in
// emails.last_event have the same numbers.
var Types = db.NewNames("email_events.type", map[Type]int16{EmailScheduled: 1, EmailQueued: 2, EmailSent: 3,
	EmailDelayed: 4, EmailDelivered: 5, EmailOpened: 6, EmailClicked: 7, EmailBounced: 8, EmailFailed: 9,
	EmailSuppressed: 10, EmailCanceled: 11, EmailComplained: 12, EmailUnsubscribed: 13, EmailReceived: 14})

// outcomes holds the numbers of the outcomes of attempts in email_events.outcome.
var outcomes = db.NewNames("email_events.outcome", map[string]int16{"delivered": 1, "delayed": 2, "bounced": 3,
	"mixed": 4, "unknown": 5})

// AnyOf returns the numbers of types as the right side of IN in a statement.
func AnyOf(types ...Type) string {
	numbers := make([]string, len(types))
	for i, t := range types {
		numbers[i] = Types.SQL(t)
	}
	return "(" + strings.Join(numbers, ", ") + ")"
}

// TypeName returns the name of a type that was read from the database, without the prefix "email.".
func TypeName(number int16) (string, error) {
	t, err := Types.Name(number)
	return strings.TrimPrefix(string(t), "email."), err
}

// ReadType returns the name of a type that was read from the database, without the prefix "email.". A type that a newer
// release has written, while nodes of both releases run, gets a name with its number, so that the other events of the
// email can still be read.
func ReadType(number int16) string {
	name, err := TypeName(number)
	if err != nil {
		return fmt.Sprintf("unknown_event_%d", number)
	}
	return name
}

// Event is one recorded event.
type Event struct {
	ID     string // id of the event, set by Record if empty
	TeamID string
	Type   Type
	At     time.Time // time of the event; if zero, Record sets it to the transaction's time

	// The following fields are set only for email events.
	EmailID     string // id of the sent email; empty for a received email
	DomainID    string
	BroadcastID string
	Recipient   string // envelope address; empty if the event concerns the whole email
	ContactID   string // the recipient's contact; empty if none, and if the email was queued, scheduled or canceled

	// ForwardRule is the id of the rule that forwarded the email, or "". Listeners do not suppress addresses for
	// bounces of forwarded emails, because the team did not choose to send them mail.
	ForwardRule string

	// OneRecipient is true if the email is known to have a single recipient, whose state is that of the email. Such an
	// email has no row in email_recipients, and listeners need not look for one.
	OneRecipient bool

	// Email returns the email's fields that are sent with the event, without querying the database. If Email is nil, the
	// caller of Record has not loaded the email, and listeners query it.
	Email func() (*Email, error)

	// Attempt is the try to deliver that caused the event, or nil. If a try causes several events, only one of them has
	// the Attempt.
	Attempt *Attempt

	// For email events, Data is a *Bounce, *Delayed, *Failed, *Canceled, *Suppressed, *Complaint, *Open, *Click or
	// *Received. For contact, broadcast, approval and transport events, Data is a *Contact, *Broadcast, *Approval or
	// *Transport. For other events, Data has the type of the changed resource.
	Data any
}

// Email holds the fields of a sent email that are part of the email's events (webhook reference 2).
type Email struct {
	ID          string
	MessageID   string // with angle brackets
	From        string
	To          []string
	Subject     string
	BroadcastID string
	TemplateID  string
	Tags        []Pair
	Headers     []Pair // header fields that the API client has set
	CreatedAt   time.Time
}

// Attempt is one try to deliver an email to a destination, including the SMTP conversation.
type Attempt struct {
	Destination  string
	Recipients   []string
	Host         string // name and address of the host; "" if none was reached
	TLS          string // "" if the connection was not encrypted
	Outcome      string // delivered, delayed, bounced, mixed or unknown
	Reply        string
	Conversation string
	StartedAt    time.Time
	Duration     time.Duration
	NextAt       time.Time // zero if there is no next try
	Evidence     []byte    // packed by package evidence; nil if nothing was recorded
}

// Pair is a name with a value.
type Pair struct{ Name, Value string }

// Bounce describes why mail to a recipient bounced (webhook reference 2.3).
type Bounce struct {
	Type string `json:"type"` // Permanent, Transient or Undetermined
	// SubType is General, NoEmail, MailboxFull, MessageTooLarge, ContentRejected, AttachmentRejected or Undetermined.
	SubType        string   `json:"subType"`
	Message        string   `json:"message"`
	DiagnosticCode []string `json:"diagnosticCode"`

	// Suppress is true if the address itself fails permanently, so that no more email may be sent to it. Suppress is
	// false if a host's policy blocked the email, which the sender must resolve.
	Suppress bool `json:"-"`
	// Simulated is true for test addresses, which do not affect reputation or suppressions.
	Simulated bool `json:"-"`
}

// Complaint is a spam report from a recipient.
type Complaint struct {
	Simulated bool `json:"-"`
}

// Failed is the reason why an email could not be sent.
type Failed struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitzero"` // a sentence that explains the reason and names a remedy; "" for most reasons

	// Unmailed is true if only this recipient must not be mailed, as if the recipient were suppressed. An email with
	// other recipients does not fail.
	Unmailed bool `json:"-"`
}

// Delayed is the reason why an email is withheld. Events for emails that a mail host refused temporarily have no such
// data.
type Delayed struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitzero"` // as in Failed
}

// Canceled is the reason why the system canceled the email to a recipient. Events for emails that a user canceled have
// no such data.
type Canceled struct {
	Reason string `json:"reason"`
}

// Suppressed is the reason why a recipient was not mailed.
type Suppressed struct {
	Message        string   `json:"message"`
	Type           string   `json:"type"`   // Suppressed or OnAccountSuppressionList
	Reason         string   `json:"reason"` // previous_bounce or previous_complaint
	DiagnosticCode []string `json:"diagnosticCode"`
}

// Open describes a request for an email's tracking pixel, which shows that the email was opened.
type Open struct {
	IPAddress string    `json:"ipAddress"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Click describes a click on a tracked link (webhook reference 2.3).
type Click struct {
	IPAddress string    `json:"ipAddress"`
	Link      string    `json:"link"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Machine tells whether a program rather than a person opened the email or followed the link. The zero value of Machine
// means a person.
type Machine struct {
	Is bool `json:"machine,omitzero"`
	// Reason names the evidence that a program was involved: user_agent, prefetch, address, timing, burst or head.
	Reason string `json:"machineReason,omitzero"`
}

// DetailMachine is the event detail for opens and clicks by programs.
const DetailMachine = "machine"

// Received is a received message (webhook reference 3).
type Received struct {
	ID          string
	CreatedAt   time.Time
	From        string // the bare address
	To, Cc, Bcc []string
	ReceivedFor []string
	MessageID   string // Message-ID with angle brackets; empty if none
	Subject     string
	Attachments []ReceivedFile
}

// Approval describes an email that is waiting for a person's approval, or that a person has approved or rejected. An
// Approval does not contain the email itself.
type Approval struct {
	ID         string
	State      string
	From       string
	Recipients int
	Subject    string
	By         string // the name of the connected app that requested the email
	Reason     string // why the email was rejected or could not be sent; "" if neither
	EmailID    string // id of the sent email; "" if the email was not sent
	URL        string // URL of the page where a person decides
	CreatedAt  time.Time
	ExpiresAt  time.Time
}

// Contact is the state of a contact after it was created or updated, or when it was deleted (webhook reference 4).
type Contact struct {
	ID           string
	SegmentIDs   []string
	Email        string
	FirstName    string // empty when none
	LastName     string
	Unsubscribed bool
	CreatedAt    time.Time
	UpdatedAt    time.Time

	// The Switched and Topics fields are for listeners; webhooks do not contain them.
	Switched bool          // whether Unsubscribed changed, or is true for a new contact
	Topics   []TopicChange // new choices
}

// TopicChange is a topic that a contact opted in to or out of.
type TopicChange struct {
	TopicID string
	In      bool
}

// Transport describes the state of the MTA-STS policy that this installation serves for a domain.
type Transport struct {
	DomainID string
	Name     string
	Mode     string    // of the policy
	Since    time.Time // when the breakage was first found
	Problems []TransportProblem
}

// TransportProblem is a problem with the policy of a domain.
type TransportProblem struct {
	Type    string // host, policy, record, mx or certificate
	Message string
}

// Broadcast describes a paused broadcast.
type Broadcast struct {
	ID        string
	Name      string
	Reason    string // reason code, such as too_many_bounces
	Message   string // one-sentence explanation of the reason, with a remedy
	CreatedAt time.Time
}

// ReceivedFile is an attachment in a received message. Fields that are missing from the attachment's header are empty.
type ReceivedFile struct {
	ID, Filename, ContentType, Disposition, ContentID string
}

// Listener is called with events in the transaction that records them. If a listener returns an error, the transaction
// fails.
type Listener interface {
	Recorded(ctx context.Context, tx *db.Tx, all []Event) error
}

// Recorder records events. All listeners must be added before the first call to Record.
type Recorder struct{ listeners []Listener }

// Listen adds a listener. Listeners are called in the order in which they were added.
func (h *Recorder) Listen(l Listener) { h.listeners = append(h.listeners, l) }

// Record writes the events of sent emails to the emails' timelines and calls all listeners, both in the transaction tx.
// Record sets missing ids and times.
func (h *Recorder) Record(ctx context.Context, tx *db.Tx, all ...Event) error {
	for i := range all {
		e := &all[i]
		if e.ID == "" {
			e.ID = id.At(tx.Now())
		}
		if e.At.IsZero() {
			e.At = tx.Now()
		}
	}
	if err := insert(ctx, tx, all); err != nil {
		return err
	}
	for _, l := range h.listeners {
		if err := l.Recorded(ctx, tx, all); err != nil {
			return fmt.Errorf("tell a listener of %d events: %w", len(all), err)
		}
	}
	return nil
}

// isFirst reports whether an event says that an email was queued when it was accepted. Such an event is not stored,
// because the email's row says the same.
func (e *Event) isFirst() bool { return e.Type == EmailQueued && e.ID == e.EmailID }

// Detail returns the part of an event's data that statistics and filters use.
func (e *Event) Detail() string {
	machine := false
	switch d := e.Data.(type) {
	case *Bounce:
		return strings.ToLower(d.Type)
	case *Open:
		machine = d.Is
	case *Click:
		machine = d.Is
	}
	if machine {
		return DetailMachine
	}
	return ""
}

func (e *Event) encoded() (string, error) {
	if e.Data == nil {
		return "", nil
	}
	text, err := json.Marshal(e.Data)
	if err != nil {
		return "", fmt.Errorf("encode the data of %s: %w", e.Type, err)
	}
	return string(text), nil
}
