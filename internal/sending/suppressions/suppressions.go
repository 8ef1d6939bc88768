// Package suppressions manages each team's suppression list: the addresses that the team's emails are not sent to.
//
// An address is on a team's list at most once, in lower case; adding it again keeps the first entry. A complaint, or a
// hard bounce that concerns the address itself, adds the address in the transaction that records the event. So the
// event and the entry are written together or not at all. Blocks by a host's policy, full mailboxes and test addresses
// never add an address. Removing an address takes effect at once.
//
// The package does not filter recipients: package emails looks them up here.
package suppressions

import "time"

// Origin is the reason why an address is suppressed.
type Origin string

const (
	Bounce    Origin = "bounce"
	Complaint Origin = "complaint"
	Manual    Origin = "manual"
)

// Suppression is an entry of a team's list.
type Suppression struct {
	ID        string
	TeamID    string
	Address   string // lower case
	Origin    Origin
	SourceID  string // the email that caused the entry; empty for manual entries
	CreatedAt time.Time
}

// MaxBatch is the maximum number of addresses that one request may add or remove (specification, Limits).
const MaxBatch = 100
