// Package report reads what mail systems say about mail: bounces (RFC 3464), complaints (RFC 5965), and what merely
// answers by itself (RFC 3834). It also says what a refusal means, in a report or in a conversation (Classify).
//
// Invariants:
//   - What a person wrote is no report, whatever it quotes: fields and delays count only where the envelope or the header
//     says that a machine made the message, and bounces never in the name of the recipient.
//   - What answers by itself is no bounce.
//   - Reading never fails, for any input, and takes time linear in it. What a report does not say stays empty.
//
// A report is only as true as its sender, and anybody can write one: who acts on it must know, by a signed return
// path or otherwise, that the message reported on was his.
package report

import (
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
)

// Kind is what a message that came to a return path is.
type Kind string

const (
	None      Kind = ""           // a message from a person, or nothing that is known
	Delivery  Kind = "delivery"   // a delivery status notification; each recipient has its action
	Complaint Kind = "complaint"  // an abuse report
	AutoReply Kind = "auto-reply" // absent, out of office, a list's greeting, a receipt
)

// Actions of RFC 3464 section 2.3.3.
const (
	Failed    = "failed"
	Delayed   = "delayed" // the host goes on trying
	Delivered = "delivered"
	Relayed   = "relayed"
	Expanded  = "expanded"
)

// Report is what was read from a message.
type Report struct {
	Kind       Kind
	Recipients []Recipient // of a complaint: those who complain, when it names them; at most 1,000
	MessageID  string      // of the message reported on, with angle brackets; empty when the report does not show it
	To         []string    // of the message reported on
	Feedback   string      // of a complaint: abuse, fraud, not-spam and so on
	MailFrom   string      // return path of the message reported on, when the report shows it
	Original   []message.Field
}

// Recipient is what became of one address.
type Recipient struct {
	Original   string // the address as we sent to it, when the report says so
	Final      string // where the host sent it in the end
	Action     string // failed, delayed, delivered, relayed or expanded
	Status     string // enhanced status code, such as 5.1.1
	Diagnostic string // what the host said, without the type before it
	RemoteMTA  string
	Unnamed    bool // the report names nobody, and it may be about another recipient
}

// maxRecipients bounds what one report can be about, maxText how many octets of each part are looked at.
const (
	maxRecipients = 1000
	maxText       = 1 << 20
)

// ReadComplaint reads a complaint. The kind is None if raw is none, or a report of another kind.
func ReadComplaint(raw []byte) Report {
	r, _ := read(raw).complaint()
	return r
}

// Complains reports whether somebody did not want the message. Reports that say the opposite, and those that machines
// make about authentication (RFC 6591), have the same form.
func (r Report) Complains() bool {
	switch r.Feedback {
	case "not-spam", "auth-failure", "dmarc", "dkim", "spf":
		return false
	}
	return r.Kind == Complaint
}

// Class says what the refusal of a failed or delayed recipient means. A host that gave up trying never said no for
// good, so that does not suppress.
func (r Recipient) Class() Class {
	code, enhanced, text := splitReply(r.Diagnostic[:min(len(r.Diagnostic), longestRefusal)])
	if generic(enhanced) && (enhanced == "" || !generic(r.Status)) {
		enhanced = r.Status
	}
	if generic(enhanced) {
		enhanced = "" // It says no more than that it failed.
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
		return unclear // Of one of them, and nobody knows of which.
	}
	return c
}

// generic reports whether an enhanced status code names no cause.
func generic(status string) bool {
	return status == "" || strings.HasSuffix(status, ".0.0")
}

// mail is a message that may be a report.
type mail struct {
	*message.Parsed
	text string // what a reader sees of it
	kind string // Content-Type, in lower case

	null bool // it came with an empty envelope sender
}

func read(raw []byte) *mail {
	m := &mail{Parsed: message.Parse(raw)}
	if m.HasText {
		m.text = m.Text()
	} else {
		html := m.HTML()
		m.text = message.TextFromHTML(html[:min(len(html), maxText)])
	}
	m.text = strings.ToValidUTF8(m.text[:min(len(m.text), maxText)], "")
	m.kind = strings.ToLower(m.field("Content-Type"))
	return m
}

// field returns the first field with a name.
func (m *mail) field(name string) string { return fieldOf(m.Header, name) }

func fieldOf(header []message.Field, name string) string {
	for _, f := range header {
		if strings.EqualFold(f.Name, name) {
			return f.Value
		}
	}
	return ""
}

// isReport reports whether the message says of itself that it is a report of a kind, or of any for an empty one.
func (m *mail) isReport(kind string) bool {
	return strings.HasPrefix(m.kind, "multipart/report") && strings.Contains(m.kind, kind)
}

// byMachine reports whether the header says that a machine made the message.
func (m *mail) byMachine() bool {
	return m.autoSubmitted() || m.null || m.byDaemon()
}

// byDaemon reports whether the program that delivers mail made the message, rather than one that answers it.
func (m *mail) byDaemon() bool {
	if m.isReport("") || m.field("X-Failed-Recipients") != "" {
		return true
	}
	from, subject := strings.ToLower(m.field("From")), strings.ToLower(m.Subject)
	if answersSomebody(subject) {
		return false // Postmasters are people at times.
	}
	for _, daemon := range []string{"mailer-daemon", "postmaster", "mail delivery s", "maildelivery", "mail-daemon", "mdaemon@", "microsoftexchange",
		"delivery notification", "system administrator", "mail administrator", "mail router", "mail delive", "post_master@", "sysadmin@", "mailmaster@", "<>"} {
		if strings.Contains(from, daemon) {
			return true
		}
	}
	if !m.null {
		return false
	}
	for _, words := range []string{"undeliver", "delivery status", "delivery fail", "delivery report", "failure notice", "returned mail", "mail delivery",
		"non-delivery", "nondelivery", "unzustellbar"} {
		if strings.Contains(subject, words) {
			return true
		}
	}
	return false
}

// answersSomebody reports whether a subject in lower case is that of an answer or of something passed on.
func answersSomebody(subject string) bool {
	return begins(subject, []string{"re:", "aw:", "fw:", "fwd:", "sv:", "antw:", "rv:", "tr:"})
}

// autoSubmitted reports whether the message says that nobody wrote it (RFC 3834 section 5).
func (m *mail) autoSubmitted() bool {
	word, _, _ := strings.Cut(strings.ToLower(m.field("Auto-Submitted")), ";")
	word = strings.TrimSpace(word)
	return word != "" && word != "no"
}
