// Package report parses reports from mail systems: bounces (RFC 3464), complaints (RFC 5965), and automatic replies
// (RFC 3834). Package report also classifies the refusals in reports and in SMTP sessions (Classify).
//
// # Invariants
//
// A message that a person wrote is not a report, even if it quotes a report. Report fields and phrases about delays are
// considered only if the envelope or the header shows that a program wrote the message. A message from the recipient's
// own address is not a bounce. An automatic reply is not a bounce.
//
// Parsing a report takes time linear in the size of the input.
//
// # Failures
//
// Parsing a report never fails, for any input. Fields of the result are empty if the report does not contain the
// information.
//
// # Out of scope
//
// Package report does not check who sent a report. Anyone can write a report, so its content may be false. Before
// acting on a report, the caller must verify that this installation sent the reported message, for example by checking
// a signed return path.
package report

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/message"
)

// Kind is the kind of message that arrived at a return path.
type Kind string

const (
	None      Kind = ""           // a message from a person, or a message of unknown kind
	Delivery  Kind = "delivery"   // a delivery status notification; each recipient has its own action
	Complaint Kind = "complaint"  // an abuse report
	AutoReply Kind = "auto-reply" // an out-of-office reply, a mailing list's welcome message, or a read receipt
)

// These are the actions from RFC 3464 section 2.3.3.
const (
	Failed    = "failed"
	Delayed   = "delayed" // the host will retry delivery
	Delivered = "delivered"
	Relayed   = "relayed"
	Expanded  = "expanded"
)

// Report is the information extracted from a message.
type Report struct {
	Kind       Kind
	Recipients []Recipient // at most 1,000; for a complaint, the complainants it names, if any
	MessageID  string      // Message-ID of the reported message, with angle brackets; empty if unknown
	To         []string    // recipients of the reported message
	Feedback   string      // feedback type of a complaint, such as abuse, fraud or not-spam
	MailFrom   string      // return path of the reported message; empty if unknown
	Original   []message.Field
}

// Recipient is the outcome of delivery to one address.
type Recipient struct {
	Original   string // the address that we sent to; empty if unknown
	Final      string // the address that the host finally sent the message to
	Action     string // failed, delayed, delivered, relayed or expanded
	Status     string // enhanced status code, such as 5.1.1
	Diagnostic string // the host's reply or explanation, without the type prefix such as "smtp;"
	RemoteMTA  string
	Unnamed    bool // the report names no recipient, so it may be about a different one
}

// maxRecipients is the maximum number of recipients in a report. The constant maxText is the maximum number of bytes
// that are read from each part.
const (
	maxRecipients = 1000
	maxText       = 1 << 20
)

// ReadComplaint parses a complaint. The result has Kind None if raw is not a complaint.
func ReadComplaint(raw []byte) Report {
	r, _ := read(raw).complaint()
	return r
}

// Complains reports whether a recipient complained about the message. "Not spam" reports and automatic reports about
// authentication failures (RFC 6591) have the same syntax but are not complaints.
func (r Report) Complains() bool {
	switch r.Feedback {
	case "not-spam", "auth-failure", "dmarc", "dkim", "spf":
		return false
	}
	return r.Kind == Complaint
}

// Class classifies the refusal for a recipient to whom delivery failed or was delayed. If the host gave up without a
// permanent refusal, the class does not suppress the address.
func (r Recipient) Class() Class {
	code, enhanced, text := splitReply(r.Diagnostic[:min(len(r.Diagnostic), longestRefusal)])
	if generic(enhanced) && (enhanced == "" || !generic(r.Status)) {
		enhanced = r.Status
	}
	if generic(enhanced) {
		enhanced = "" // This code says only that delivery failed and gives no cause.
	}
	c := Classify(code, enhanced, text)
	if r.Action == Delayed {
		return c.forNow()
	}
	if code < 500 && strings.HasPrefix(r.Status, "4.") || code/100 == 4 || strings.HasSuffix(enhanced, ".4.7") ||
		first(lowerASCII(text), expiries) >= 0 {
		return c.Expired()
	}
	if r.Unnamed && c.Fault == Recipients {
		return unclear // The report is about one of several recipients but does not say which one.
	}
	return c
}

// generic reports whether an enhanced status code is missing or does not specify a cause.
func generic(status string) bool {
	return status == "" || strings.HasSuffix(status, ".0.0")
}

// mail is a parsed message that may be a report.
type mail struct {
	*mailparse.Parsed
	text string // the visible text
	kind string // Content-Type, in lower case

	null bool // the envelope sender is empty
}

func read(raw []byte) *mail {
	m := &mail{Parsed: mailparse.Parse(raw)}
	if m.HasText {
		m.text = m.Text()
	} else {
		html := m.HTML()
		m.text = htmltext.FromHTML(html[:min(len(html), maxText)])
	}
	m.text = strings.ToValidUTF8(m.text[:min(len(m.text), maxText)], "")
	m.kind = strings.ToLower(m.field("Content-Type"))
	return m
}

// field returns the value of the first field with the given name.
func (m *mail) field(name string) string { return fieldOf(m.Header, name) }

func fieldOf(header []message.Field, name string) string {
	for _, f := range header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// isReport reports whether the Content-Type is multipart/report with the given report type, or with any report type if
// kind is empty.
func (m *mail) isReport(kind string) bool {
	return strings.HasPrefix(m.kind, "multipart/report") && strings.Contains(m.kind, kind)
}

// byMachine reports whether the header says that a program wrote the message.
func (m *mail) byMachine() bool {
	return m.autoSubmitted() || m.null || m.byDaemon()
}

// byDaemon reports whether the message was written by a mail delivery program rather than by a program that answers
// mail.
func (m *mail) byDaemon() bool {
	if m.isReport("") || m.field("X-Failed-Recipients") != "" {
		return true
	}
	from, subject := strings.ToLower(m.field("From")), strings.ToLower(m.Subject)
	if answersSomebody(subject) {
		return false // A reply or a forwarded message from postmaster may have been written by a person.
	}
	for _, daemon := range []string{"mailer-daemon", "postmaster", "mail delivery s", "maildelivery", "mail-daemon",
		"mdaemon@", "microsoftexchange",
		"delivery notification", "system administrator", "mail administrator", "mail router", "mail delive", "post_master@",
		"sysadmin@", "mailmaster@", "<>"} {
		if strings.Contains(from, daemon) {
			return true
		}
	}
	if !m.null {
		return false
	}
	for _, words := range []string{"undeliver", "delivery status", "delivery fail", "delivery report", "failure notice",
		"returned mail", "mail delivery",
		"non-delivery", "nondelivery", "unzustellbar"} {
		if strings.Contains(subject, words) {
			return true
		}
	}
	return false
}

// answersSomebody reports whether a subject, given in lower case, begins like that of a reply or a forwarded message.
func answersSomebody(subject string) bool {
	return begins(subject, []string{"re:", "aw:", "fw:", "fwd:", "sv:", "antw:", "rv:", "tr:"})
}

// autoSubmitted reports whether the header says that no person wrote the message (RFC 3834 section 5).
func (m *mail) autoSubmitted() bool {
	word, _, _ := strings.Cut(strings.ToLower(m.field("Auto-Submitted")), ";")
	word = strings.TrimSpace(word)
	return word != "" && word != "no"
}
