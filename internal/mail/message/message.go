// Package message makes and reads email: addresses, header fields, and whole messages in MIME form.
//
// Invariants:
//   - What is composed is RFC 5322 and MIME (RFC 2045 to 2047, 2231, 2387): lines end with CRLF and are at most
//     998 octets long (76 wherever the content allows), text is UTF-8, and the message is 7-bit unless an address has
//     a local part outside ASCII (RFC 6532).
//   - No value can open a header field of its own. Compose refuses CR, LF and NUL in everything that goes into a
//     header, also when its caller has checked before.
//   - The same Message gives the same bytes, on every machine and at any time: boundaries come from Seed, media types
//     from a table of our own, dates are written in UTC.
//   - Bcc is not a field of Message, so it cannot leak.
//   - What others sent is read whatever it is (Parse): in linear time, in memory that its size bounds, into valid UTF-8. It
//     says what was wrong with it, and never fails.
//
// Failures of composing are *AddressError, *FieldError and *AttachmentError. Each carries a sentence that may be shown to the user,
// and nothing of the message is returned beside them.
//
// The package does not know recipients of the envelope, size limits of a product, or delivery.
package message

import (
	"time"
)

// Message is an email to be composed. Recipients that must stay hidden are simply not in it.
type Message struct {
	// ID is the Message-ID with its angle brackets: <x@y>.
	ID string
	// Date is written in UTC; it must not be zero.
	Date time.Time
	From Address
	// To and Cc may both be empty (all recipients are hidden); the message then says "undisclosed-recipients".
	To, Cc, ReplyTo []Address
	// Subject is UTF-8 as the reader shall see it, without line breaks. Empty means no Subject field.
	Subject string
	// HTML and Text are UTF-8 with line ends of either kind. With both, the reader's program chooses. With neither,
	// the message has one empty text part.
	HTML, Text string
	// Headers are further fields in the order in which they are written; each must pass CheckField. A Message-ID
	// among them is left out, because ID rules.
	Headers     []Field
	Attachments []Attachment
	// Seed makes the boundaries between parts; an email's id serves. Empty means ID.
	Seed string
}

// Field is one header field: its name and its unfolded value in UTF-8.
type Field struct {
	Name, Value string
}

// Attachment is a file in a message.
type Attachment struct {
	// Filename is what the reader saves it as; empty is allowed.
	Filename string
	// ContentType is a media type, with parameters if need be; empty means by the extension of Filename.
	ContentType string
	// ContentID, without angle brackets, makes it an inline part that the HTML shows as cid:ContentID.
	ContentID string
	Content   []byte
}

// FieldError reports a header value that must not be sent.
type FieldError struct {
	// Name is the header field at fault, as the caller spelt it.
	Name string
	// Reserved says that the field is one which only the service writes.
	Reserved bool
	// Reason is a sentence for the user.
	Reason string
}

// Error returns the sentence.
func (e *FieldError) Error() string { return e.Reason }

// AttachmentError reports an attachment whose name, media type or content id cannot be sent.
type AttachmentError struct {
	// Filename is the attachment's name, which may be empty.
	Filename string
	// Reason is a sentence for the user.
	Reason string
}

// Error returns the sentence.
func (e *AttachmentError) Error() string { return e.Reason }
