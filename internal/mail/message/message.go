// Package message composes email: addresses, header fields, media types, and whole messages in MIME form. Package
// message also parses addresses, with strict rules.
//
// # Invariants
//
// A composed message conforms to RFC 5322 and MIME (RFCs 2045 to 2047, 2231 and 2387). Lines end with CRLF and are at
// most 998 bytes long, or 76 bytes if the content allows it. Text is UTF-8, and the message is 7-bit unless an address
// has a non-ASCII local part (RFC 6532).
//
// A value cannot inject a header field. Compose rejects CR, LF and NUL in every value that it writes to a header, even
// if the caller has already checked the value. Bcc is not a field of Message, so Bcc recipients cannot leak.
//
// Composing the same Message always yields the same bytes. Boundaries are derived from Seed, media types come from a
// table in this package, and dates are written in UTC.
//
// A parsed address is exactly one mailbox. The sender that mail clients show is the same as the one that ParseFrom and
// ReadFrom return.
//
// # Failures
//
// If a message cannot be composed or an address cannot be parsed, the error is an *AddressError, *FieldError or
// *AttachmentError. Each of these errors contains a sentence that may be shown to the user. If a function returns an
// error, all its other results are zero.
//
// # Out of scope
//
// Package message does not handle envelope recipients, message size limits, or delivery. Package mailparse parses
// messages.
package message

import "time"

// Message is an email to be composed. Message does not contain Bcc recipients.
type Message struct {
	// ID is the Message-ID with its angle brackets: <x@y>.
	ID string
	// Date is written in UTC; it must not be zero.
	Date time.Time
	From Address
	// To and Cc may both be empty if all recipients are hidden. The message then has "To: undisclosed-recipients:;".
	To, Cc, ReplyTo []Address
	// Subject is the decoded subject in UTF-8, without line breaks. If Subject is empty, the message has no Subject
	// field.
	Subject string
	// HTML and Text are UTF-8 with CRLF or LF line endings. If both are given, the recipient's mail client chooses
	// which one to show. If both are empty, the message has one empty text part.
	HTML, Text string
	// Headers are additional fields, which are written in this order; each field must pass CheckField. If Headers
	// contains a Message-ID, Compose omits it and writes ID instead.
	Headers     []Field
	Attachments []Attachment
	// ReportType makes a message with attachments a multipart/report with this report-type (RFC 6522). It is a token,
	// such as tlsrpt.
	ReportType string
	// Seed is a string that determines the boundaries between parts, for example the email's id. If Seed is empty, ID
	// is used.
	Seed string
}

// Field is one header field: its name and its unfolded value in UTF-8.
type Field struct {
	Name, Value string
}

// Attachment is a file in a message.
type Attachment struct {
	// Filename is the suggested name for saving the file; it may be empty.
	Filename string
	// ContentType is a media type, optionally with parameters. If ContentType is empty, the type is derived from the
	// extension of Filename.
	ContentType string
	// ContentID, which has no angle brackets, makes the attachment an inline part that the HTML refers to as
	// cid:ContentID.
	ContentID string
	Content   []byte
}

// FieldError reports a header value that must not be sent.
type FieldError struct {
	// Name is the name of the invalid header field, as the caller spelled it.
	Name string
	// Reserved means that the field is invalid because only the service may write it.
	Reserved bool
	// Reason is a sentence that explains the problem to the user.
	Reason string
}

// Error returns Reason.
func (e *FieldError) Error() string { return e.Reason }

// AttachmentError reports an attachment whose name, media type or content id cannot be sent.
type AttachmentError struct {
	// Filename is the attachment's name, which may be empty.
	Filename string
	// Reason is a sentence that explains the problem to the user.
	Reason string
}

// Error returns Reason.
func (e *AttachmentError) Error() string { return e.Reason }
