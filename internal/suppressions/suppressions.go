// Package suppressions is the list of addresses that a team does not mail.
//
// An address is on a team's list once, in lower case; the first entry stays, whatever would add it again. A hard bounce that
// is the address's own fault and a complaint add it by themselves, in the transaction that records the event. Blocks by a
// host's policy, full mailboxes and the test addresses never do. Taking an address off works at once.
//
// The package decides nothing about sending: emails asks it which of its recipients are listed.
package suppressions

import "time"

// Origin says why an address is on the list.
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
	SourceID  string // the email that caused it; empty when none
	CreatedAt time.Time
}

// MaxBatch is how many addresses one request may add or remove (specification, Limits).
const MaxBatch = 100
