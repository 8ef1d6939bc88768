// Package preflight checks an email before it is sent and reports its problems. A problem is anything that may keep an
// email from being delivered or displayed as intended: missing DNS records, markup that mailbox providers cut off, drop
// or distrust, or violated requirements for bulk mail. Each check has one result, with a sentence that says how to
// solve the problem.
//
// # Invariants
//
// Checks report facts from the email and from DNS, and do not interpret the email's wording. Every check has a result,
// and the order of the results is the same for every email. The checks read at most the first 2 MiB of HTML, in linear
// time, and make at most 40 DNS look-ups within 5 seconds. Whatever the email contains, details are few and short and
// contain no control characters.
//
// # Failures
//
// Checks never return an error, except for an error of the database. If DNS does not answer in time, the check's result
// has the level Info and states that the record could not be looked up.
//
// # Out of scope
//
// Package preflight reads no emails; the caller provides the email, and [Checker] reads the state of its domain.
// Package preflight does not follow links, load images or send anything, and does not judge an email's wording.
package preflight

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// Level is the severity of a result.
type Level string

// Levels in order of increasing severity.
const (
	Pass    Level = "pass"
	Info    Level = "info"    // a hint, or the check could not be completed
	Warning Level = "warning" // some mail clients or mailbox providers do not handle the email as intended
	Problem Level = "problem" // mailbox providers refuse the email, or are likely to classify it as spam or fraud
)

var levels = []Level{Pass, Info, Warning, Problem}

// Result is the result of one check.
type Result struct {
	ID      string // of the check
	Level   Level
	Message string   // a sentence that says how to solve the problem
	Details []string // examples, such as the affected links; at most maxDetails
}

// Worst returns the most severe level among the given results, or Pass if there are no results.
func Worst(all []Result) Level {
	worst := 0
	for _, r := range all {
		worst = max(worst, slices.Index(levels, r.Level))
	}
	return levels[worst]
}

// Input is an email as it would be sent, together with the state of its sender domain.
type Input struct {
	From    message.Address
	ReplyTo []string
	Subject string
	HTML    string // "" if there is no HTML part
	Text    string // given or converted from the HTML; "" if there is no text part
	Headers []message.Field
	// Bulk is true for bulk mail: a header field marks the email as bulk, or the email belongs to a topic or a
	// broadcast.
	Bulk       bool
	ContentIDs []string // content ids of the attachments to which the HTML may refer
	Sender     Sender
	DNS        resolve.Resolver // nil if DNS look-ups are disabled
}

// Sender is the state of the domain in the From field. All domain names in Sender are in lower-case ASCII. The zero
// Sender means an unknown domain.
type Sender struct {
	Refused    string   // the message with which an email from it would be refused; "" if accepted
	Trusted    bool     // whether the domain counts as verified without a look-up in the DNS, as in development
	Sandbox    bool     // whether this is the operator's domain for trial emails
	SignedBy   string   // the domain of the DKIM signatures; "" if there are none
	ReturnPath string   // the host of return paths; "" if unknown
	Keys       []Key    // the signing keys
	Tracking   Tracking // tracking settings of the domain
}

// Key is the DNS record of a DKIM signing key.
type Key struct {
	Name     string // of the record
	Optional bool   // another key suffices
	State    State
}

// State is the verification state of a DNS record.
type State uint8

const (
	NotFound State = iota // not found yet
	Found
	Gone // the record was not found for too long, or was found earlier but is now missing
)

// Tracking specifies which links in a domain's emails are tracked.
type Tracking struct {
	Host   string // host of tracked links; "" if nothing is tracked
	Clicks bool
}

// Bounds of results.
const (
	maxDetails = 20
	maxDetail  = 200 // bytes
)

// Run runs all checks for an email.
func Run(ctx context.Context, in Input) []Result {
	answers := lookUp(ctx, &in)
	page := read(&in)
	all := []Result{sender(&in), dkim(&in), answers.spf, answers.dmarc, answers.alignment, unsubscribe(&in),
		noReply(&in), subject(&in), textPart(&in), page.size(&in)}
	return append(all, page.results(&in)...)
}

func result(id string, level Level, format string, args ...any) Result {
	return Result{ID: id, Level: level, Message: fmt.Sprintf(format, args...)}
}

// with returns a copy of the result with at most maxDetails of the given details.
func (r Result) with(details ...string) Result {
	for _, d := range details[:min(len(details), maxDetails)] {
		r.Details = append(r.Details, printable(d))
	}
	return r
}

// printable returns an untrusted string as one short line without control characters.
func printable(text string) string {
	cut := len(text) > maxDetail
	if cut {
		text = text[:maxDetail]
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) || unicode.In(r, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return -1
		}
		return r
	}, text)
	if cut {
		text += "…"
	}
	return text
}

// sender checks whether Postrider accepts emails from the domain at all.
func sender(in *Input) Result {
	switch {
	case in.Sender.Refused != "":
		return result("sender", Problem, "%s", in.Sender.Refused)
	case in.Sender.Sandbox:
		return result("sender", Info,
			"The domain %s is for trying things out. Add and verify a domain of your own to write "+
				"to others.", in.From.Domain)
	}
	if in.Sender.Trusted {
		return result("sender", Pass, "The domain %s counts as verified, because this installation does not ask the DNS.",
			in.From.Domain)
	}
	return result("sender", Pass, "The domain %s is verified.", in.From.Domain)
}

// dkim checks whether receivers can find the DKIM keys in DNS.
func dkim(in *Input) Result {
	if in.Sender.Sandbox {
		return result("dkim", Pass, "The email is signed with the operator's key.")
	}
	if in.Sender.SignedBy == "" {
		return result("dkim", Problem, "There is no key to sign with: add the domain %s and install its DNS records.",
			in.From.Domain)
	}
	var found, gone, missing []string
	for _, k := range in.Sender.Keys {
		switch {
		case k.State == Found:
			found = append(found, k.Name)
		case k.Optional:
		case k.State == Gone:
			gone = append(gone, k.Name)
		default:
			missing = append(missing, k.Name)
		}
	}
	const install = "Install the TXT record that is listed with the domain, and verify the domain."
	switch {
	case len(gone) > 0:
		return result("dkim", Problem, "The DKIM record is not in the DNS, so that nobody can verify the signature. "+
			install).with(gone...)
	case len(missing) > 0:
		return result("dkim", Problem, "The DKIM record was not found yet. "+install).with(missing...)
	case len(found) == 0:
		return result("dkim", Problem, "No DKIM record of the domain is known. "+install)
	}
	if in.Sender.Trusted {
		return result("dkim", Pass, "The email is signed for %s. The key counts as published, because this installation "+
			"does not ask the DNS.", in.Sender.SignedBy).with(found...)
	}
	return result("dkim", Pass,
		"The email is signed for %s, and the key is in the DNS.", in.Sender.SignedBy).with(found...)
}
