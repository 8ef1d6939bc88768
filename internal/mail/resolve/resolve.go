// Package resolve performs the DNS look-ups that mail needs: the mail hosts of a domain, the addresses of a host, and
// TXT, CNAME, CAA, PTR and TLSA records.
//
// # Invariants
//
// - Names in arguments and results are ASCII (A-labels) without a trailing dot; names in results are in lower case.
// - Every look-up is bounded: attempts, CNAME hops and records are limited, and the context limits the total time.
// - An answer or an absence is secure only if a server has authenticated all of it (DNSSEC) that may be believed and has
// passed the self-check.
//
// # Failures
//
// The result of a look-up is either definite or temporary. ErrNotFound is definite: the name or the records do not
// exist. ErrNoName, which wraps ErrNotFound, means that the name itself does not exist. For every other failure, such
// as SERVFAIL, a refusal, a missing response or an invalid one, the error is ErrTemporary. After a temporary failure,
// the caller repeats the look-up later, and no mail bounces. If our own DNS servers failed, and not those of the
// domain, the error is also ErrNoServer. If a server found wrong DNSSEC signatures, the error of a secure look-up is
// also ErrBogus, or ErrNoServer if the server finds them wrong everywhere.
//
// # Out of scope
//
// The package does not validate DNSSEC: it relies on the AD bit of a validating server (RFC 4035 section 4.9.3). It
// does not decide whether a client may connect to an address, and does not convert international names to A-labels.
package resolve

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// Resolver performs DNS look-ups. A Resolver is safe for concurrent use. All methods follow CNAME records, except CNAME
// itself.
type Resolver interface {
	// MX returns the mail exchangers for name, in the order of the DNS response. A null MX (RFC 7505) has an empty
	// Host.
	MX(ctx context.Context, name string) ([]MX, error)
	// Addrs returns the IPv4 and IPv6 addresses of host.
	Addrs(ctx context.Context, host string) ([]netip.Addr, error)
	// TXT returns one string for each TXT record; the character strings of a record are concatenated.
	TXT(ctx context.Context, name string) ([]string, error)
	// CNAME returns the target of the alias at name, without following any more aliases, or ErrNotFound if name is not
	// an alias.
	CNAME(ctx context.Context, name string) (string, error)
	// CAA returns the records at name itself; the caller must query the parent domains (RFC 8659 section 3).
	CAA(ctx context.Context, name string) ([]CAA, error)
	// PTR returns the reverse DNS names of addr. The owner of an address can claim any name in reverse DNS, so callers
	// must check that the addresses of that name include addr.
	PTR(ctx context.Context, addr netip.Addr) ([]string, error)
}

// MX is one MX record (RFC 1035 section 3.3.9).
type MX struct {
	Host string
	Pref uint16 // hosts with a lower preference are tried first
}

// CAA is one CAA record (RFC 8659 section 4.1). CAA.Tag is in lower case.
type CAA struct {
	Flag  uint8
	Tag   string
	Value string
}

// These are the errors that every Resolver returns; compare with errors.Is.
var (
	// ErrNotFound is definite: the name has no records of the requested type.
	ErrNotFound = errors.New("no such DNS record")
	// ErrNoName wraps ErrNotFound and means that the name itself does not exist (NXDOMAIN, RFC 8020).
	ErrNoName = fmt.Errorf("%w: the name does not exist", ErrNotFound)
	// ErrTemporary means that there was no usable answer; a later attempt may succeed.
	ErrTemporary = errors.New("temporary DNS failure")
)

// maxHops is the maximum number of CNAME records that one look-up follows; a longer chain is treated as a loop.
const maxHops = 8

// clean returns the form of name used in comparisons and look-ups: in lower case, without a trailing dot.
func clean(name string) string {
	return strings.ToLower(strings.TrimSuffix(name, "."))
}

// checkName returns a definite error if name is not a valid DNS name, because no server could answer a query for it.
// The length limits are those of RFC 1035 section 2.3.4.
func checkName(name string) error {
	if name == "" || len(name) > 253 {
		return fmt.Errorf("%w: %q is not a DNS name", ErrNoName, name)
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return fmt.Errorf("%w: %q is not a DNS name", ErrNoName, name)
		}
	}
	for i := range len(name) {
		if c := name[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return fmt.Errorf("%w: %q is not an ASCII DNS name", ErrNoName, name)
		}
	}
	return nil
}
