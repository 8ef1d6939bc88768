// Package report reads what mail systems say about mail: bounces (RFC 3464), complaints (RFC 5965), and what merely answers
// by itself (RFC 3834).
package report

// Kind is what a message that came to a return path is.
type Kind string

const (
	None      Kind = ""           // a message from a person, or nothing that is known
	Delivery  Kind = "delivery"   // a delivery status notification; each recipient has its action
	Complaint Kind = "complaint"  // an abuse report
	AutoReply Kind = "auto-reply" // absent, out of office, a list's greeting
)

// Report is what was read from a message.
type Report struct {
	Kind       Kind
	Recipients []Recipient
	MessageID  string // of the message reported on, with angle brackets; empty when the report does not show it
	To         []string
	Feedback   string // of a complaint: abuse, fraud, not-spam and so on
}

// Recipient is what became of one address.
type Recipient struct {
	Original   string // the address as we sent to it, when the report says so
	Final      string // where the host sent it in the end
	Action     string // failed, delayed, delivered, relayed or expanded
	Status     string // enhanced status code, such as 5.1.1
	Diagnostic string // what the host said, without the type before it
	RemoteMTA  string
}
