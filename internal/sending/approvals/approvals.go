// Package approvals holds emails that must be approved before they are sent. A connected app that may not send email
// can request approval for an email instead.
//
// # Shape
//
// A connected app submits the email with [Service.Request]. A person or an API key then approves the email
// ([Service.Approve]) or rejects it ([Service.Reject]). A request expires if nobody decides on it within 72 hours
// ([Service.Sweep]).
//
// # Invariants
//
// The approved email is identical to the email shown on the approval page. When the approval is requested, the email is
// checked and its template is rendered; nothing is fetched later. Every state except pending is final. One transaction
// accepts the email and marks the approval as approved. The email is sent at most once, even if two people approve it
// at the same time or the node crashes. An approved email is sent on behalf of its requester, with the rights and
// limits that the requester has at the time of approval. The requester is a connected app, an API key or a person. The
// audit log records who approved the email.
//
// A connected app sees only its own requests and cannot approve or reject them. Each connected app may have at most
// [maxPending] pending requests.
//
// The email is stored only while its approval is pending. After the decision, the approval's database row keeps only
// the sender, the subject and the number of recipients. The row is deleted once [retention] has passed.
//
// # Failures
//
// If the email breaks a rule when it is approved, the approval's state becomes failed and the reason is recorded. If a
// quota is used up or the error may be temporary, the approval stays pending and can be approved later.
//
// # Out of scope
//
// The package leaves scope checks to its callers, but it never lets a connected app approve or reject a request. The
// package does not serve the approval page.
package approvals

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	lifetime    = 72 * time.Hour
	retention   = 90 * 24 * time.Hour // after the decision
	maxPending  = 100                 // maximum number of pending requests per connected app
	maxRequest  = 4 << 20             // maximum size of an email as JSON; base64 makes attachments a third larger
	maxReason   = 500                 // characters
	mailsPerDay = 20                  // maximum number of notices per day about one connected app
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

// States lists all approval states.
var States = []State{Pending, Approved, Rejected, Expired, Failed}

// Approval is a request to send an email.
type Approval struct {
	ID         string
	TeamID     string
	Actor      teams.ActorRef // the requester
	ActorName  string         // the requester's name at the time of the request
	From       string
	Recipients int
	Subject    string
	State      State
	CreatedAt  time.Time
	ExpiresAt  time.Time
	DecidedAt  time.Time      // zero while the approval is pending
	DecidedBy  teams.ActorRef // the zero value if the approval is pending or expired
	Reason     string         // why the request was rejected or the email could not be sent
	EmailID    string         // id of the email that was sent

	Email *emails.Send // always nil in list results and after the decision
}
