// Package message composes email: addresses, header fields, media types, and whole messages in MIME form. The package
// also parses, strictly, the addresses that people and programs write.
//
// # Invariants
//
//   - A composed message conforms to RFC 5322 and MIME (RFC 2045 to 2047, 2231, 2387): lines end with CRLF and are at
//     most 998 bytes long (76 wherever the content allows), text is UTF-8, and the message is 7-bit unless an address
//     has a local part outside ASCII (RFC 6532).
//   - A value cannot inject a header field. Compose refuses CR, LF and NUL in everything that it writes to a header,
//     even if its caller has checked it before.
//   - The same Message gives the same bytes, on every machine and at any time: boundaries are derived from Seed,
//     media types come from a table in this package, dates are written in UTC.
//   - Bcc is not a field of Message, so it cannot leak.
//   - A parsed address is exactly one mailbox. Every other reader finds the same sender that ParseFrom and ReadFrom
//     return.
//
// # When it fails
//
// Composing and parsing addresses fail with *AddressError, *FieldError and *AttachmentError. Each of these errors
// contains a sentence that may be shown to the user. The other results are then zero.
//
// # What it does not do
//
// The package does not know the recipients of the envelope, the size limits of a product, or delivery. Package
// mailparse parses messages.
package message

import "time"

// Message is an email to be composed. Recipients that must stay hidden are not part of it.
type Message struct {
	// ID is the Message-ID with its angle brackets: <x@y>.
	ID string
	// Date is written in UTC; it must not be zero.
	Date time.Time
	From Address
	// To and Cc may both be empty if all recipients are hidden; the message then has "To: undisclosed-recipients:;".
	To, Cc, ReplyTo []Address
	// Subject is UTF-8 as the reader sees it, without line breaks. Empty means no Subject field.
	Subject string
	// HTML and Text are UTF-8 with line ends of either kind. If both are given, the reader's program chooses one. If
	// neither is given, the message has one empty text part.
	HTML, Text string
	// Headers are further fields in the order in which they are written; each must pass CheckField. Compose omits a
	// Message-ID among them and writes ID.
	Headers     []Field
	Attachments []Attachment
	// Seed determines the boundaries between parts, for example the id of the email. Empty means ID.
	Seed string
}

// Field is one header field: its name and its unfolded value in UTF-8.
type Field struct {
	Name, Value string
}

// Attachment is a file in a message.
type Attachment struct {
	// Filename is the name under which a reader saves the file; empty is allowed.
	Filename string
	// ContentType is a media type, optionally with parameters; empty means the type of Filename's extension.
	ContentType string
	// ContentID, without angle brackets, makes the attachment an inline part that the HTML refers to as cid:ContentID.
	ContentID string
	Content   []byte
}

// FieldError reports a header value that must not be sent.
type FieldError struct {
	// Name is the header field at fault, as the caller spelt it.
	Name string
	// Reserved reports that only the service writes the field.
	Reserved bool
	// Reason is a sentence for the user.
	Reason string
}

// Error returns Reason.
func (e *FieldError) Error() string { return e.Reason }

// AttachmentError reports an attachment whose name, media type or content id cannot be sent.
type AttachmentError struct {
	// Filename is the attachment's name, which may be empty.
	Filename string
	// Reason is a sentence for the user.
	Reason string
}

// Error returns Reason.
func (e *AttachmentError) Error() string { return e.Reason }
