// Package approvals holds emails that must be approved before they are sent. A connected app without the right to send
// may request an email instead.
//
// # Shape
//
// A connected app passes the email to [Service.Request]. A person or an API key approves the email ([Service.Approve])
// or rejects the email ([Service.Reject]). A request that is not decided within 72 hours expires ([Service.Sweep]).
//
// # Invariants
//
// The approved email is identical to the email shown on the approval page. The email is checked and its template
// rendered when the approval is requested; nothing is fetched later. Every state except pending is final. One
// transaction accepts the email and marks the approval as approved. The email is sent at most once, even if two people
// approve it at the same time or the node crashes. An approved email is sent as its requester, with the rights and
// limits that the requester has at approval. The requester is a connected app, an API key or a person. The audit log
// records who approved the email.
//
// A connected app sees only its own requests and cannot decide them. A connected app may have at most [maxPending]
// pending requests.
//
// The email is stored only while its approval is pending. After the decision the approval's row keeps only the sender,
// the subject and the number of recipients. The row is deleted after [retention].
//
// # Failures
//
// If the email breaks a rule at approval, the approval becomes failed and records the reason. If a quota is used up or
// the error may be temporary, the approval stays pending and can be approved later.
//
// # Out of scope
//
// The package leaves scope checks to its callers, but never lets a connected app decide a request. The package serves
// no pages.
package approvals

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	lifetime    = 72 * time.Hour
	retention   = 90 * 24 * time.Hour // after the decision
	maxPending  = 100                 // pending requests of one connected app
	maxRequest  = 4 << 20             // maximum bytes of an email as JSON; base64 makes attachments a third larger
	maxReason   = 500                 // characters
	mailsPerDay = 20                  // notices a day about the requests of one connected app
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

	Email *emails.Send // nil in lists and after the decision
}
