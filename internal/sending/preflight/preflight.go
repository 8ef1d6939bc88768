// Package checks examines an email as it would be sent, and says what may keep it from arriving or from being read
// as it was meant: what is missing in the DNS, what mailbox providers cut off, drop or distrust, and what they
// require of bulk mail. Each check has one result with a sentence that says what to do.
//
// # Invariants
//
//   - A check states what can be known from the email and the DNS. Nothing is guessed from words.
//   - Every check has a result, in the same order, whatever the email is.
//   - Work is bounded: the first 2 MiB of HTML in linear time, at most 40 look-ups, and 5 seconds for all of them.
//   - Details are few, short, and without control characters, whatever the email has in it.
//
// # When it fails
//
// It does not fail. What the DNS does not answer in time has the level Info, and says that it could not be looked up.
//
// # What it does not do
//
// It reads no rows: the caller brings the email and what is known of its domain. It does not follow links, load
// images or send anything, and it does not judge what an email says.
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

// Level is how much a result matters.
type Level string

// The levels, from the least to the most serious.
const (
	Pass    Level = "pass"
	Info    Level = "info"    // good to know, or not known
	Warning Level = "warning" // some readers or mailbox providers do not take the email as it is meant
	Problem Level = "problem" // the email is refused, or likely to be taken for spam or fraud
)

var levels = []Level{Pass, Info, Warning, Problem}

// Result is what one check found.
type Result struct {
	ID      string // of the check
	Level   Level
	Message string   // a sentence that says what to do
	Details []string // what it is about, such as links; at most maxDetails
}

// Worst returns the most serious level of the results, or Pass without any.
func Worst(all []Result) Level {
	worst := 0
	for _, r := range all {
		worst = max(worst, slices.Index(levels, r.Level))
	}
	return levels[worst]
}

// Input is an email as it would be sent, and what is known of its sender.
type Input struct {
	From    message.Address
	ReplyTo []string
	Subject string
	HTML    string // of the part; "" if there is none
	Text    string // of the part, which may have been made from the HTML; "" if there is none
	Headers []message.Field
	// Bulk reports that it is bulk mail: a header marks it, or it goes to a list that the service keeps.
	Bulk       bool
	ContentIDs []string // of the files that the HTML may show
	Sender     Sender
	DNS        resolve.Resolver // nil if the DNS must not be asked
}

// Sender is what is known of the domain in From. Names are in lower-case ASCII. The zero value is a domain of which
// nothing is known.
type Sender struct {
	Refused    string   // the sentence with which an email from it would be refused, "" if it would not
	Sandbox    bool     // it is the operator's, to try things out
	SignedBy   string   // the domain of the DKIM signatures, "" if there are none
	ReturnPath string   // the host of return paths, "" if it is not known
	Keys       []Key    // that sign
	Tracking   Tracking // what is tracked of its emails
}

// Key is the DNS record of a key that signs.
type Key struct {
	Name     string // of the record
	Optional bool   // there is another that suffices
	State    State
}

// State is what is known of a DNS record.
type State uint8

const (
	NotFound State = iota // it was not found yet
	Found
	Gone // it was looked up for a while and is not there, or not any more
)

// Tracking is what is tracked of the emails of a domain.
type Tracking struct {
	Host   string // of the links that lead there by way of the service; "" tracks nothing
	Clicks bool
}

// Bounds of results.
const (
	maxDetails = 20
	maxDetail  = 200 // octets
)

// Run makes all checks of an email.
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

// with returns the result with details, the first of them if there are too many.
func (r Result) with(details ...string) Result {
	for _, d := range details[:min(len(details), maxDetails)] {
		r.Details = append(r.Details, printable(d))
	}
	return r
}

// printable returns a text that may come from an email in a form that can be shown: one short line.
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

// sender tells whether an email from the domain is accepted at all.
func sender(in *Input) Result {
	switch {
	case in.Sender.Refused != "":
		return result("sender", Problem, "%s", in.Sender.Refused)
	case in.Sender.Sandbox:
		return result("sender", Info,
			"The domain %s is for trying things out. Add and verify a domain of your own to write "+
				"to others.", in.From.Domain)
	}
	return result("sender", Pass, "The domain %s is verified.", in.From.Domain)
}

// dkim tells whether receivers find the keys that sign.
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
	const install = "Install the TXT record that `GET /domains/{domain_id}` shows, and verify the domain."
	switch {
	case len(gone) > 0:
		return result("dkim", Problem, "The DKIM record is not in the DNS, so that nobody can verify the signature. "+
			install).with(gone...)
	case len(missing) > 0:
		return result("dkim", Problem, "The DKIM record was not found yet. "+install).with(missing...)
	case len(found) == 0:
		return result("dkim", Problem, "No DKIM record of the domain is known. "+install)
	}
	return result("dkim", Pass,
		"The email is signed for %s, and the key is in the DNS.", in.Sender.SignedBy).with(found...)
}
