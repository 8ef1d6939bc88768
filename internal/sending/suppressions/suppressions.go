// Package suppressions manages the suppression list of each team. A team's emails are not sent to addresses on the
// team's suppression list.
//
// An address is on a team's list at most once, in lower case. If the address is added again, the existing entry is
// kept. After a complaint, or a hard bounce that concerns the address itself, the address is added in the transaction
// that records the event. The event and the entry are therefore written together or not at all. An address is never
// added because of a host's policy, a full mailbox or a bounce from a test address. The removal of an address takes
// effect immediately.
//
// The package does not filter recipients. Package emails uses this package to look up which recipients are suppressed.
package suppressions

import "time"

// Origin is the reason for which an address is suppressed.
type Origin string

const (
	Bounce    Origin = "bounce"
	Complaint Origin = "complaint"
	Manual    Origin = "manual"
)

// Suppression is an entry on a team's suppression list.
type Suppression struct {
	ID        string
	TeamID    string
	Address   string // lower case
	Origin    Origin
	SourceID  string // id of the email that caused the suppression; empty for manual entries
	CreatedAt time.Time
}

// MaxBatch is the maximum number of addresses that one request may add or remove (specification, Limits).
const MaxBatch = 100
