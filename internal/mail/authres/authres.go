// Package authres authenticates the origin of a received message using SPF (RFC 7208), DKIM (RFC 6376) and DMARC (RFC
// 9989).
//
// # Invariants
//
//   - A verdict is "pass" only if the check ran to completion and succeeded.
//   - If a technical failure or the time limit stops a check, its verdict is "temperror", never "fail".
//   - The work per message is bounded: one time limit for all methods, eight signatures, a header of 256 KiB, the
//     look-ups that SPF allows (about a hundred), at most 73 look-ups for DMARC, most often one, and 51 for ARC.
//   - An ARC chain changes no other verdict. If the operator trusts all of its sealers, a chain can replace the DMARC
//     policy by none.
//   - The message is read from its file in small buffers, so the whole body is never in memory at once.
//
// # Failures
//
// The package returns no errors. The result of a failed check is a Verdict whose Detail gives the reason.
//
// # Out of scope
//
// The package does not act on a verdict and does not send DMARC reports.
package authres

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/lib/lograte"
)

// These are the result keywords from RFC 8601 section 2.7 that this package uses.
const (
	pass      = "pass"
	fail      = "fail"
	softfail  = "softfail"
	neutral   = "neutral"
	none      = "none"
	temperror = "temperror"
	permerror = "permerror"
)

// timeout is the time limit for all checks of one message: SPF, DKIM and DMARC.
const timeout = 10 * time.Second

// Results holds the verdicts on one message. The result keywords are those of RFC 8601: pass, fail, softfail, neutral,
// none, temperror and permerror.
type Results struct {
	SPF  Verdict
	DKIM []Verdict // one verdict per signature, in message order; a single "none" verdict if unsigned
	// Signed are the names of the header fields that the signatures cover, in lower case and in the order of DKIM. It has
	// none for signatures that do not pass.
	Signed [][]string `json:"-"`
	DMARC  Verdict
	// Policy is the policy that the DMARC record requests for the message: none, quarantine or reject. In test mode, it
	// is the next milder one. It is empty if DMARC does not apply.
	Policy string
	ARC    Verdict // its domain is that of the newest seal
	// Header is the unfolded value of an Authentication-Results field with these results.
	Header string
	// Facts is what a DMARC report would say about the message. It is nil unless Evaluator.Facts is set, and if DMARC
	// does not apply to the message or could not be evaluated.
	Facts *Facts `json:"-"`
}

// Verdict is the result of one authentication method.
type Verdict struct {
	Result string
	Domain string // the domain that was checked, in lower-case ASCII
	Detail string // human-readable reason; it may quote the message
}

// Origin describes where a message came from: the SMTP client and the return path.
type Origin struct {
	Addr     netip.Addr
	Hello    string
	MailFrom string // empty for the null return path
}

// Checker evaluates messages.
type Checker interface {
	// Check authenticates the message in raw, which it reads from the start more than once.
	Check(ctx context.Context, o Origin, raw io.ReaderAt, size int64) Results
}

// DNS performs the DNS look-ups for SPF, DKIM and DMARC. The methods of DNS return a *net.DNSError, as those of
// *net.Resolver do. IsNotFound is set if the name or record does not exist, and IsTemporary is set if the look-up
// failed. The errors also wrap those of package resolve, as those of resolve.NetForm do.
type DNS interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

var _ Checker = (*Evaluator)(nil)

// Evaluator is a Checker that uses DNS look-ups. An Evaluator is safe for concurrent use.
type Evaluator struct {
	hostname string
	dns      DNS
	trusted  []string // domains of ARC sealers, in lower-case ASCII

	// Facts is whether Check sets Results.Facts, which takes further look-ups. It must be set before the first check.
	Facts bool
	// Log, if set, gets a line if the public suffix list would give another result for a message. The rate of these
	// lines is limited. Log must be set before the first check.
	Log     *slog.Logger
	differs lograte.Limiter
}

// New returns an Evaluator. The hostname identifies this mail server in the Authentication-Results field.
func New(hostname string, dns DNS) *Evaluator {
	return &Evaluator{hostname: hostname, dns: dns}
}

// TrustSealers sets the domains of ARC sealers that the operator trusts, in lower-case ASCII. It must be called before
// the first Check.
func (e *Evaluator) TrustSealers(domains ...string) { e.trusted = domains }

// Check implements Checker. Check takes at most ten seconds, or less if ctx ends earlier.
func (e *Evaluator) Check(ctx context.Context, o Origin, raw io.ReaderAt, size int64) Results {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r Results
	var methods sync.WaitGroup
	methods.Go(func() { r.SPF = e.spf(ctx, o) })
	h := readHeader(raw, size)
	r.DKIM, r.Signed = e.dkim(ctx, h, raw, size)
	chain := e.arc(ctx, h, raw, size)
	r.ARC = arcVerdict(&chain)
	methods.Wait()
	e.dmarc(ctx, h, o, &r)
	e.override(&r, &chain)
	r.Header = format(e.hostname, o, &r)
	return r
}

// hostName converts name to the form used in DNS: lower-case ASCII without a trailing dot. The result is "" if name
// cannot be a mail domain, such as an address literal, a single label or an invalid name.
func hostName(name string) string {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil {
		// Underscores are not allowed in host names, but they occur in the names of mail domains.
		ascii = strings.TrimSuffix(name, ".")
	}
	if len(ascii) > 253 || !strings.Contains(ascii, ".") {
		return ""
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" || len(label) > 63 {
			return ""
		}
	}
	for _, c := range []byte(ascii) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_') {
			return ""
		}
	}
	return strings.ToLower(ascii)
}
