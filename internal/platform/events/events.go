// Package events records what happens to emails, domains, suppressions and contacts, by [Recorder.Record], in the
// transaction that makes it so.
//
// Record writes the events of emails to their timelines and then calls each listener in the same transaction: listeners
// advance the email's state, suppress an address after a hard bounce or a complaint, and queue webhooks. Through
// listeners a package of a lower layer calls packages of higher ones; cli registers them, in the order in which they
// run. A listener must have no effect outside the database before the commit.
//
// # When it fails
//
// When a listener or a statement fails, Record returns the error and the caller must fail its transaction: nothing of
// the event is stored, and the caller tries again what led to it.
//
// # What it does not do
//
// It does not decide what happened, and it sends nothing.
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

// Type names an event as webhooks do.
type Type string

const (
	EmailQueued     Type = "email.queued" // for the timeline only; webhooks never have it
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
	// EmailUnsubscribed is for the timeline and the counts only: webhooks have contact.updated
	EmailUnsubscribed Type = "email.unsubscribed"
	// Data is *Received, and EmailID is empty: the timeline is the received email's
	EmailReceived Type = "email.received"

	DomainCreated Type = "domain.created"
	DomainUpdated Type = "domain.updated"
	DomainDeleted Type = "domain.deleted"

	SuppressionAdded   Type = "suppression.added"
	SuppressionRemoved Type = "suppression.removed"

	ContactCreated Type = "contact.created"
	ContactUpdated Type = "contact.updated"
	ContactDeleted Type = "contact.deleted"

	BroadcastPaused Type = "broadcast.paused" // by a guard, not by hand

	ApprovalRequested Type = "approval.requested"
	ApprovalDecided   Type = "approval.decided"
)

// Event is something that happened.
type Event struct {
	ID     string // made by Record when empty
	TeamID string
	Type   Type
	At     time.Time // the transaction's time when zero

	// Only for events of emails.
	EmailID     string
	DomainID    string
	BroadcastID string
	Recipient   string // the envelope address concerned; empty when the event is of the whole email
	ContactID   string // that the email was entered for; empty when for none, and of events of accepting and canceling

	// Email returns what is sent of the email with the event, without querying the database. It is nil when the caller
	// of Record has not loaded the email; then it is looked up.
	Email func() (*Email, error)

	// Data is *Bounce, *Failed, *Suppressed, *Complaint, *Open or *Click for email events, *Received for received email,
	// *Contact for contacts, *Broadcast for broadcasts, *Approval for approvals, and the changed resource's own type for others.
	Data any
}

// Email is what is sent of a sent email with its events (webhook reference 2).
type Email struct {
	ID          string
	MessageID   string // with angle brackets
	From        string
	To          []string
	Subject     string
	BroadcastID string
	TemplateID  string
	Tags        []Pair
	Headers     []Pair // those given by the API client
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

	// Suppress is true when the address itself is at fault permanently, so that nothing must be sent to it again. Blocks
	// by a host's policy are for the sender to resolve and never suppress.
	Suppress bool `json:"-"`
	// Simulated is true for the test addresses, which leave no trace in reputation or suppressions.
	Simulated bool `json:"-"`
}

// Complaint is a recipient's report of spam.
type Complaint struct {
	Simulated bool `json:"-"`
}

// Failed is why an email could not be sent at all.
type Failed struct {
	Reason string `json:"reason"`

	// Unmailed is true when it is the recipient who must not be mailed, as if it were suppressed: the email itself has not
	// failed as long as there are others.
	Unmailed bool `json:"-"`
}

// Suppressed is why a recipient was not mailed.
type Suppressed struct {
	Message        string   `json:"message"`
	Type           string   `json:"type"`   // Suppressed or OnAccountSuppressionList
	Reason         string   `json:"reason"` // previous_bounce or previous_complaint
	DiagnosticCode []string `json:"diagnosticCode"`
}

// Open is a tracking pixel that was loaded.
type Open struct {
	IPAddress string    `json:"ipAddress"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Click is a followed link (webhook reference 2.3).
type Click struct {
	IPAddress string    `json:"ipAddress"`
	Link      string    `json:"link"`
	Timestamp time.Time `json:"timestamp"`
	UserAgent string    `json:"userAgent"`
	Machine
}

// Machine says whether a program opened or followed something, rather than a person. Its zero value is a person.
type Machine struct {
	Is bool `json:"machine,omitzero"`
	// Reason is by what it was recognised: user_agent, prefetch, address, timing, burst or head.
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
	MessageID   string // with angle brackets, empty when it had none
	Subject     string
	Attachments []ReceivedFile
}

// Approval is an email of which a person is to decide, or has. The email itself is not among it.
type Approval struct {
	ID         string
	State      string
	From       string
	Recipients int
	Subject    string
	By         string // the name of the program that asks
	Reason     string // why it was rejected or could not be sent; "" otherwise
	EmailID    string // of the email that was sent; "" otherwise
	URL        string // of the page on which a person decides
	CreatedAt  time.Time
	ExpiresAt  time.Time
}

// Contact is a contact that was created, updated or deleted, as it is after that (webhook reference 4).
type Contact struct {
	ID           string
	SegmentIDs   []string
	Email        string
	FirstName    string // empty when none
	LastName     string
	Unsubscribed bool
	CreatedAt    time.Time
	UpdatedAt    time.Time

	// For listeners alone: webhooks do not send it.
	Switched bool          // Unsubscribed changed, or it is true of a contact that was created
	Topics   []TopicChange // what it chose that it had not chosen before
}

// TopicChange is a topic that a contact opted in to or out of.
type TopicChange struct {
	TopicID string
	In      bool
}

// Broadcast is a broadcast that was paused.
type Broadcast struct {
	ID        string
	Name      string
	Reason    string // a name such as too_many_bounces
	Message   string // the reason as a sentence, and what to do
	CreatedAt time.Time
}

// ReceivedFile is an attachment of a received message. What its header does not state is empty.
type ReceivedFile struct {
	ID, Filename, ContentType, Disposition, ContentID string
}

// Listener is called with events in the transaction that records them. An error fails the transaction.
type Listener interface {
	Recorded(ctx context.Context, tx *db.Tx, all []Event) error
}

// Recorder records events. Its listeners are fixed before the first Record.
type Recorder struct{ listeners []Listener }

// Listen adds a listener, which is called after those that were added before.
func (h *Recorder) Listen(l Listener) { h.listeners = append(h.listeners, l) }

// Record writes the events of emails to their timelines and calls all listeners, in the transaction tx. It sets the
// ids and times that are missing.
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

// TimelineID is the id of the sent or received email to whose timeline the event belongs, or empty for none.
func (e *Event) TimelineID() string {
	if r, ok := e.Data.(*Received); ok {
		return r.ID
	}
	return e.EmailID
}

// Detail is the part of an event's data by which it is counted or filtered.
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
