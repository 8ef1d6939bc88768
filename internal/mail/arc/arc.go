// Package arc verifies and extends chains of the Authenticated Received Chain (ARC, RFC 8617). Each host that forwards
// a message adds an ARC set of three header fields. ARC-Authentication-Results holds the results that the host saw.
// ARC-Message-Signature covers the message as the host sent it. ARC-Seal covers all sets so far.
//
// # Invariants
//
//   - A chain has the state "pass" only if the newest message signature and every seal were verified.
//   - Seal adds fields at the top and changes nothing else, so that it breaks no DKIM signature.
//   - A chain has at most 50 sets. A broken chain gets one last seal with cv=fail, and no further one.
//   - Verify makes at most 51 public-key operations and 51 look-ups, and keeps only the header in memory.
//
// # Failures
//
// A chain that is malformed, altered or signed with unusable keys fails; the [Chain] names the instance and the reason.
// If the DNS does not answer, the state is [TempError], and Seal refuses to seal, because the caller can try again.
//
// # Out of scope
//
// The package makes no look-ups itself and does not decide which sealers to trust. It does not evaluate older message
// signatures, because a host that changes a message breaks them on purpose. It supports only RSA with SHA-256, which
// RFC 8617 and all known sealers use; other signatures fail.
package arc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MaxSets is the maximum number of sets in a chain (RFC 8617 section 4.2.1).
const MaxSets = 50

// Limits of what Verify reads.
const (
	maxHeader    = 256 << 10 // bytes
	maxFields    = 2000
	maxField     = 16 << 10 // bytes of one field of a set
	maxKeyRecord = 4 << 10  // bytes
	minRSABits   = 1024
	maxRSABits   = 8192
)

// State is the state of a chain.
type State string

// The states of a chain. TempError is the result of RFC 8601 for a check that could not be completed.
const (
	None      State = "none"
	Pass      State = "pass"
	Fail      State = "fail"
	TempError State = "temperror"
)

// Chain is the result of verifying a message's ARC sets.
type Chain struct {
	State State
	// Reason says in a sentence why the chain does not pass; it may quote the message. Instance is the set that the
	// reason concerns, or 0 if it concerns the message.
	Reason   string
	Instance int
	// Sets lists the sets in the order of their instances, up to the first one that is incomplete. It is nil if a field
	// of a set is malformed or occurs twice.
	Sets []Set

	last   int // highest instance that a field names
	ended  bool
	fields [][3][]byte // of each set, in the order of kinds
}

// Set describes one ARC set.
type Set struct {
	Instance int
	Sealer   string // the domain in ARC-Seal, in lower case
	Results  string // the results in ARC-Authentication-Results, without the instance
}

// Describe returns a short text for people: the size of the chain and its sealers, or the reason why it does not pass.
// It returns "" if there is no chain.
func (c *Chain) Describe() string {
	var names []string
	for _, s := range c.Sets {
		if !slices.Contains(names, s.Sealer) && len(names) < 5 {
			names = append(names, s.Sealer)
		}
	}
	text := ""
	switch {
	case len(c.Sets) == 1:
		text = "sealed by " + names[0]
	case len(names) > 0:
		text = fmt.Sprintf("%d sets, sealed by %s", len(c.Sets), strings.Join(names, ", "))
	}
	if c.Reason == "" {
		return text
	}
	if c.Instance > 0 {
		return fmt.Sprintf("set %d: %s", c.Instance, c.Reason)
	}
	return c.Reason
}

// LookupTXT looks up the TXT records of a name. Its errors wrap those of package resolve.
type LookupTXT func(ctx context.Context, name string) ([]string, error)

// Errors of Seal.
var (
	// ErrEnded means that the chain takes no further set: it has 50, or its last seal says that it failed.
	ErrEnded = errors.New("the ARC chain takes no further seal")
	// ErrUnverified means that the chain could not be verified for the moment.
	ErrUnverified = errors.New("the ARC chain cannot be verified at present, so it cannot be sealed")
)

// kind is one of the three fields of a set.
type kind int

const (
	results kind = iota
	signature
	seal
)

// kinds are the names of the fields of a set, in the order in which a seal covers them.
var kinds = [...]string{"ARC-Authentication-Results", "ARC-Message-Signature", "ARC-Seal"}
