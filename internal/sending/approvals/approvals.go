// Package approvals holds emails that must be approved before they are sent. A connected app without the right to send
// may request an email instead.
//
// # Shape
//
// A connected app passes the email to [Service.Request]. A person or an API key approves it ([Service.Approve]) or
// rejects it ([Service.Reject]). A request that is not decided within 72 hours expires ([Service.Sweep]).
//
// # Invariants
//
// The approved email is the one that the page showed. When the approval is requested, the email is checked and its
// template is filled in; nothing is fetched later. Every state except pending is final. The transaction that accepts
// the email also marks the approval. If two people approve at the same time, or the node crashes, the email is sent at
// most once. It is sent as its requester, with the requester's rights and limits at approval. The requester is a
// connected app, an API key or a person. The audit log records who approved the email.
//
// A connected app sees only its own requests and cannot decide them. It may have at most [maxPending] pending requests.
//
// The email is stored only while its approval is pending. After the decision the row has only the sender, the subject
// and the number of recipients; it is deleted after [retention].
//
// # When it fails
//
// If the email breaks a rule at approval, the approval becomes failed and records the reason. If a quota is used up, or
// the error may be temporary, the approval stays pending.
//
// # What it does not do
//
// The package does not check scopes, except that grants may not decide: its callers check them. The package serves no
// pages.
package approvals

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	lifetime    = 72 * time.Hour
	retention   = 90 * 24 * time.Hour // after the decision
	maxPending  = 100                 // requests of one connected app
	maxRequest  = 4 << 20             // bytes of an email in JSON, where files are a third larger
	maxReason   = 500                 // characters
	mailsPerDay = 20                  // notices about the requests of one connected app
)

// State is the state of an approval.
type State string

const (
	Pending  State = "pending"
	Approved State = "approved" // and sent
	Rejected State = "rejected"
	Expired  State = "expired"
	Failed   State = "failed" // the email was approved, but could not be sent
)

// States are all states.
var States = []State{Pending, Approved, Rejected, Expired, Failed}

// Approval is a request to send an email.
type Approval struct {
	ID         string
	TeamID     string
	Actor      teams.ActorRef // the requester
	ActorName  string         // at the time of the request
	From       string
	Recipients int
	Subject    string
	State      State
	CreatedAt  time.Time
	ExpiresAt  time.Time
	DecidedAt  time.Time      // zero while the approval is pending
	DecidedBy  teams.ActorRef // the zero value if pending or expired
	Reason     string         // why the request was rejected or the email could not be sent
	EmailID    string         // id of the email that was sent

	Email *emails.Send // nil in lists and after the decision
}
