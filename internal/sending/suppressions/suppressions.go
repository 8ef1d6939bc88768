// Package suppressions manages the suppression list of each team. Emails of a team are not sent to addresses on its
// list.
//
// An address is on a team's list at most once, in lower case. If the address is added again, the existing entry is
// kept. A complaint, or a hard bounce that concerns the address itself, adds the address in the transaction that
// records the event. The event and the entry are therefore written together or not at all. Policy blocks by a host,
// full mailboxes and bounces of test addresses never add an address. Removing an address takes effect immediately.
//
// The package does not filter recipients. Package emails looks up suppressed recipients in this package.
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
	SourceID  string // id of the email that caused the entry; empty for manual entries
	CreatedAt time.Time
}

// MaxBatch is the maximum number of addresses that one request may add or remove (specification, Limits).
const MaxBatch = 100
