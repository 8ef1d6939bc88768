// Package suppressions keeps each team's list of addresses that it does not mail.
//
// An address is on a team's list at most once, in lower case; adding it again keeps the first entry. A hard bounce that
// concerns the address itself and a complaint add it, in the transaction that records the event, so that the event and
// the entry are written together or not at all. Blocks by a host's policy, full mailboxes and test addresses never do.
// Removing an address takes effect at once.
//
// The package does not decide what is sent: package emails looks up its recipients here.
package suppressions

import "time"

// Origin is the reason why an address is on the list.
type Origin string

const (
	Bounce    Origin = "bounce"
	Complaint Origin = "complaint"
	Manual    Origin = "manual"
)

// Suppression is an address that is not mailed.
type Suppression struct {
	ID        string
	TeamID    string
	Address   string // lower case
	Origin    Origin
	SourceID  string // the email that caused it; empty if none did
	CreatedAt time.Time
}

// MaxBatch is how many addresses one request may add or remove (specification, Limits).
const MaxBatch = 100
