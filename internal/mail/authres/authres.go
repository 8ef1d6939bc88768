// Package authres judges by SPF (RFC 7208), DKIM (RFC 6376) and DMARC (RFC 7489) where a received message comes from.
//
// Invariants:
//   - A verdict is "pass" only when the method was carried out to its end and passed.
//   - Whatever could not be asked or not be finished in time is "temperror", never a "fail".
//   - Work is bounded whatever a message holds: one time limit for all, eight signatures, a header of 256 KiB, and
//     the look-ups that SPF allows (about a hundred).
//   - The message is read in place: its body is never held in memory.
//
// Failure: there are no errors. What goes wrong is a verdict, with the reason in its Detail.
//
// The package does not act on a verdict, does not send DMARC reports, and does not evaluate ARC chains (RFC 8617): no
// library of the field does, and a result that nobody has checked against others is worse than none.
package authres

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/idna"
)

// The result words of RFC 8601 section 2.7 that occur here.
const (
	pass      = "pass"
	fail      = "fail"
	softfail  = "softfail"
	neutral   = "neutral"
	none      = "none"
	temperror = "temperror"
	permerror = "permerror"
)

// timeout is for one message, all methods together.
const timeout = 10 * time.Second

// Results are the verdicts on one message, in the words of RFC 8601: pass, fail, softfail, neutral, none, temperror, permerror.
type Results struct {
	SPF    Verdict
	DKIM   []Verdict // one for each signature, in the order of the message; never empty
	DMARC  Verdict
	Policy string // of the DMARC record: none, quarantine or reject; empty without a record
	ARC    Verdict
	// Header is the value of an Authentication-Results field that says the same. It is not folded.
	Header string
}

// Verdict is one method's result.
type Verdict struct {
	Result string
	Domain string // whom it speaks of, in lower-case ASCII
	Detail string // why, for people; it may quote the message
}

// Origin is where a message came from.
type Origin struct {
	Addr     netip.Addr
	Hello    string
	MailFrom string // empty for the null return path
}

// Checker evaluates messages.
type Checker interface {
	// Check reads raw from its start, more than once.
	Check(ctx context.Context, o Origin, raw io.ReaderAt, size int64) Results
}

// DNS answers what the methods ask, in the form of *net.Resolver: errors are *net.DNSError, with IsNotFound for what
// does not exist and IsTemporary for what could not be asked.
type DNS interface {
	LookupTXT(ctx context.Context, name string) ([]string, error)
	LookupMX(ctx context.Context, name string) ([]*net.MX, error)
	LookupIPAddr(ctx context.Context, host string) ([]net.IPAddr, error)
	LookupAddr(ctx context.Context, addr string) ([]string, error)
}

var _ Checker = (*Evaluator)(nil)

// Evaluator is the Checker that asks the DNS. It is safe for concurrent use.
type Evaluator struct {
	hostname string
	dns      DNS
}

// New returns an evaluator that signs its results with hostname, the name of this mail server.
func New(hostname string, dns DNS) *Evaluator {
	return &Evaluator{hostname: hostname, dns: dns}
}

// Check implements Checker. It takes at most ten seconds, less when ctx ends before.
func (e *Evaluator) Check(ctx context.Context, o Origin, raw io.ReaderAt, size int64) Results {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var r Results
	var methods sync.WaitGroup
	methods.Go(func() { r.SPF = e.spf(ctx, o) })
	h := readHeader(raw, size)
	r.DKIM = e.dkim(ctx, h, raw, size)
	r.ARC = arc(h)
	methods.Wait()
	r.DMARC, r.Policy = e.dmarc(ctx, h, r.SPF, r.DKIM)
	r.Header = format(e.hostname, o, &r)
	return r
}

// arc says whether there is a chain. The number of seals is that of its sets, as the sender claims.
func arc(h header) Verdict {
	if h.seals == 0 {
		return Verdict{Result: none}
	}
	return Verdict{Result: none, Detail: fmt.Sprintf("not evaluated: the message has %d ARC sets", h.seals)}
}

// hostName returns name as the DNS knows it, or an empty string when it cannot be the name of a mail domain: an
// address literal, a single label, nonsense.
func hostName(name string) string {
	ascii, err := idna.Lookup.ToASCII(strings.TrimSuffix(name, "."))
	if err != nil {
		// Underscores are no letters of host names, and yet stand in the names of mail domains.
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
