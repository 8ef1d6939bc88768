// Package approvals keeps emails that wait until a person decides whether they go: what programs want to send that may
// not send by themselves.
//
// # Shape
//
// A program asks with what it would send ([Service.Request]); a person or an API key approves or rejects
// ([Service.Approve], [Service.Reject]); what nobody decides within 72 hours expires ([Service.Sweep]).
//
// # Invariants
//
// What is approved is what was shown: the email is checked and its template is filled in when it is asked for, and
// nothing of it is fetched later. A state that is not pending is final. An email is accepted in the transaction that
// marks its approval, so two people who approve at the same time, or a crash, make one email or none. It is sent as
// whoever asked, a program, an API key or a person, with the rights and within the limits that they have by then; the
// audit log has who approved it.
//
// A program sees only what it asked for itself, and decides of nothing. It has at most [maxPending] open at a time.
//
// The email itself is kept only while it is pending; afterwards there are the sender, the subject and the number of
// recipients, for [keptFor].
//
// # When it fails
//
// An email that breaks a rule by the time it is approved makes the approval failed, with the reason; a quota that is
// used up, and failures that may pass, leave it pending.
//
// # What it does not do
//
// It does not check who may ask, see and decide, but for grants: its callers check the scopes. It shows no pages.
package approvals

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	lifetime    = 72 * time.Hour
	retention   = 90 * 24 * time.Hour // after it was decided
	maxPending  = 100                 // of one program
	maxRequest  = 4 << 20             // octets of an email in JSON: files are a third larger there
	maxReason   = 500                 // characters
	mailsPerDay = 20                  // for the requests of one program
)

// State is what has become of a request.
type State string

const (
	Pending  State = "pending"
	Approved State = "approved" // and sent
	Rejected State = "rejected"
	Expired  State = "expired"
	Failed   State = "failed" // approved, but it could not be sent
)

// States are all states.
var States = []State{Pending, Approved, Rejected, Expired, Failed}

// Approval is a request to send an email.
type Approval struct {
	ID         string
	TeamID     string
	Actor      teams.ActorRef // who asks
	ActorName  string         // as it was then
	From       string
	Recipients int
	Subject    string
	State      State
	CreatedAt  time.Time
	ExpiresAt  time.Time
	DecidedAt  time.Time      // zero while it is pending
	DecidedBy  teams.ActorRef // the zero value unless somebody decided
	Reason     string         // why it was rejected or could not be sent
	EmailID    string         // of the email that was sent

	Email *emails.Send // what is to be sent; nil in lists, and once it is decided
}
