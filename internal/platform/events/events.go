// Package events records changes of emails, domains, suppressions and contacts. [Recorder.Record] stores an event in
// the transaction of its change.
//
// Record writes the events of emails to their timelines and then calls each listener in the same transaction. Listeners
// advance the email's state, suppress an address after a hard bounce or a complaint, and queue webhooks. Through
// listeners, packages of lower layers call packages of higher ones. Package node registers them; they run in the order
// of their registration. A listener must have no effect outside the database before the commit.
//
// # When it fails
//
// If a listener or a statement fails, Record returns the error, and the caller must fail its transaction. Nothing of
// the event is stored, and the caller repeats the action that caused it.
//
// # What it does not do
//
// The package does not decide which event occurred, and it sends nothing.
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

// Type is the name of an event, as in webhooks.
type Type string

const (
	EmailQueued     Type = "email.queued" // event for the timeline only, never in webhooks
	EmailScheduled  Type = "email.scheduled"
	EmailCanceled   Type = "email.canceled" // for the timeline only
	EmailSent       Type = "email.sent"
	EmailDelivered  Type = "email.delivered"
	EmailDelayed    Type = "email.delivery_delayed"
	EmailBounced    Type = "email.bounced"
	EmailComplained Type = "email.complained"
	EmailOpened     Type = "email.opened"
	EmailClicked    Type = "email.clicked"
	EmailFailed     Type = "email.failed"
	EmailSuppressed Type = "email.suppressed"
	// EmailUnsubscribed is only for the timeline and the counts; webhooks send contact.updated instead.
	EmailUnsubscribed Type = "email.unsubscribed"
	// Data is *Received, and EmailID is empty; the event is in the received email's timeline
	EmailReceived Type = "email.received"

	DomainCreated Type = "domain.created"
	DomainUpdated Type = "domain.updated"
	DomainDeleted Type = "domain.deleted"

	SuppressionAdded   Type = "suppression.added"
	SuppressionRemoved Type = "suppression.removed"

	ContactCreated Type = "contact.created"
	ContactUpdated Type = "contact.updated"
	ContactDeleted Type = "contact.deleted"

	BroadcastPaused Type = "broadcast.paused" // paused by the guard against bounces and complaints, not by a user

	ApprovalRequested Type = "approval.requested"
	ApprovalDecided   Type = "approval.decided"
)

// Event is one recorded event.
type Event struct {
	ID     string // set by Record if empty
	TeamID string
	Type   Type
	At     time.Time // set by Record to the transaction's time if zero

	// These fields are set only for events of emails.
	EmailID     string
	DomainID    string
	BroadcastID string
	Recipient   string // envelope address; empty if the event concerns the whole email
	ContactID   string // recipient contact; empty if none, and for events of accepting and canceling

	// Email returns the email's fields that are sent with the event, without querying the database. If it is nil, the
	// caller of Record has not loaded the email, and listeners look it up.
	Email func() (*Email, error)

	// Data of email events is *Bounce, *Failed, *Suppressed, *Complaint, *Open, *Click or *Received. For contacts,
	// broadcasts and approvals it is *Contact, *Broadcast and *Approval. For other events it has the type of the
	// changed resource.
	Data any
}

// Email holds the fields of a sent email that its events contain (webhook reference 2).
type Email struct {
	ID          string
	MessageID   string // with angle brackets
	From        string
	To          []string
	Subject     string
	BroadcastID string
	TemplateID  string
	Tags        []Pair
	Headers     []Pair // set by the API client
	CreatedAt   time.Time
}

// Pair is a name with a value.
type Pair struct{ Name, Value string }

// Bounce is why a recipient's mail was returned (webhook reference 2.3).
type Bounce struct {
	Type string `json:"type"` // Permanent, Transient or Undetermined
	// General, NoEmail, MailboxFull, MessageTooLarge, ContentRejected, AttachmentRejected, Undetermined
	SubType        string   `json:"subType"`
	Message        string   `json:"message"`
	DiagnosticCode []string `json:"diagnosticCode"`

	// Suppress is true if the address itself fails permanently, so that nothing must be sent to it again. The sender must
	// resolve blocks by a host's policy; those never suppress.
	Suppress bool `json:"-"`
	// Simulated is true for the test addresses, which affect neither reputation nor suppressions.
	Simulated bool `json:"-"`
}

// Complaint is a recipient's report of spam.
type Complaint struct {
	Simulated bool `json:"-"`
}

// Failed is the reason why an email could not be sent.
type Failed struct {
	Reason string `json:"reason"`

	// Unmailed is true if only this recipient must not be mailed, as if it were suppressed. The email has not failed as
	// long as it has other recipients.
	Unmailed bool `json:"-"`
}

// Suppressed is the reason why a recipient was not mailed.
type Suppressed struct {
	Message        string   `json:"message"`
	Type           string   `json:"type"`   // Suppressed or OnAccountSuppressionList
	Reason         string   `json:"reason"` // previous_bounce or previous_complaint
	DiagnosticCode []string `json:"diagnosticCode"`
}

// Open is a request for the tracking pixel.
type Open struct {
	IPAddress string    `json:"ipAddress"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Click is a click on a tracked link (webhook reference 2.3).
type Click struct {
	IPAddress string    `json:"ipAddress"`
	Link      string    `json:"link"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Machine tells whether a program rather than a person opened the email or followed the link. Its zero value means a
// person.
type Machine struct {
	Is bool `json:"machine,omitzero"`
	// Reason is the evidence: user_agent, prefetch, address, timing, burst or head.
	Reason string `json:"machineReason,omitzero"`
}

// DetailMachine is the detail of opens and clicks by machines.
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

// Approval is an email that needs, or has got, the decision of a person. It does not contain the email itself.
type Approval struct {
	ID         string
	State      string
	From       string
	Recipients int
	Subject    string
	By         string // the name of the connected app that requested the email
	Reason     string // why it was rejected or could not be sent; "" otherwise
	EmailID    string // of the email that was sent; "" otherwise
	URL        string // URL of the page for the decision
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

	// These fields are for listeners; webhooks do not contain them.
	Switched bool          // Unsubscribed changed, or is true for a new contact
	Topics   []TopicChange // new choices
}

// TopicChange is a topic that a contact opted in to or out of.
type TopicChange struct {
	TopicID string
	In      bool
}

// Broadcast is a paused broadcast.
type Broadcast struct {
	ID        string
	Name      string
	Reason    string // a name such as too_many_bounces
	Message   string // the reason as a sentence, with a remedy
	CreatedAt time.Time
}

// ReceivedFile is an attachment of a received message. Fields that the header of the attachment does not state are
// empty.
type ReceivedFile struct {
	ID, Filename, ContentType, Disposition, ContentID string
}

// Listener is called with events in the transaction that records them. An error fails the transaction.
type Listener interface {
	Recorded(ctx context.Context, tx *db.Tx, all []Event) error
}

// Recorder records events. Its listeners are fixed before the first Record.
type Recorder struct{ listeners []Listener }

// Listen adds a listener. Listeners are called in the order in which they were added.
func (h *Recorder) Listen(l Listener) { h.listeners = append(h.listeners, l) }

// Record writes the events of emails to their timelines and calls all listeners, in the transaction tx. It sets missing
// ids and times.
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

// TimelineID returns the id of the sent or received email to whose timeline the event belongs, or "" if there is none.
func (e *Event) TimelineID() string {
	if r, ok := e.Data.(*Received); ok {
		return r.ID
	}
	return e.EmailID
}

// Detail returns the part of an event's data that counts and filters use.
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
	if _, received := e.Data.(*Received); received || e.Data == nil {
		return "", nil // a received email is stored elsewhere
	}
	text, err := json.Marshal(e.Data)
	if err != nil {
		return "", fmt.Errorf("encode the data of %s: %w", e.Type, err)
	}
	return string(text), nil
}
