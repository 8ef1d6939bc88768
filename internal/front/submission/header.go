package submission

import (
	"bytes"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// Limits of a header.
const (
	maxHeader = 256 << 10 // bytes
	maxFields = 1000
	maxHops   = 50 // Received fields; a message with more is in a loop (RFC 5321 section 6.3)
)

// removedFields are not passed on. Removed fields are options of this service, would reveal recipients to each other,
// or may be written only by a receiving host (RFC 8601 section 5).
var removedFields = map[string]bool{"bcc": true, "resent-bcc": true, "return-path": true,
	"authentication-results": true, "resend-idempotency-key": true, "postrider-idempotency-key": true}

// ownPrefix is the prefix of this service's own fields. Unknown ones are removed too, so that clients cannot send
// fields that will get a meaning later.
const ownPrefix = "x-postrider-"

// atMostOnce are fields that may occur only once in a message (RFC 5322 section 3.6). If a field occurs twice, readers
// differ in which one they show, so the field that was checked and signed might not be the one that is shown.
var atMostOnce = map[string]bool{"from": true, "sender": true, "reply-to": true, "to": true, "cc": true,
	"subject": true, "date": true, "message-id": true, "mime-version": true, "content-type": true,
	"content-transfer-encoding": true}

// senderFields are the fields that name the author or the sender of a message.
var senderFields = map[string]bool{"from": true, "sender": true, "resent-from": true, "resent-sender": true}

// addressFields are the fields with mailboxes. The fields that are also in senderFields have one mailbox, which is
// parsed strictly.
var addressFields = map[string]bool{"from": true, "sender": true, "resent-from": true, "resent-sender": true,
	"reply-to": true, "to": true, "cc": true, "resent-to": true, "resent-cc": true, "resent-reply-to": true}

// header is the parsed header of a message.
type header struct {
	kept     []byte          // the fields that are passed on, unchanged
	body     []byte          // the empty line and all that follows
	has      map[string]bool // names of fields, in lower case
	senders  []field         // fields that name the author or the sender
	eightBit bool            // a field that is passed on contains non-ASCII characters
}

// field is a field of the header.
type field struct {
	name  string // in lower case
	value []byte // folded, without the line end
}

// split splits a message with CRLF line ends into header and body, and checks the syntax of the header. kept is a copy;
// body is part of raw.
func split(raw []byte) (*header, *smtpserver.Refusal) {
	h := &header{has: map[string]bool{}}
	count, hops := 0, 0
	rest := raw
	for len(rest) > 0 && !bytes.HasPrefix(rest, []byte("\r\n")) {
		n := fieldLength(rest)
		whole := rest[:n]
		rest = rest[n:]
		before, value, ok := bytes.Cut(whole, []byte(":"))
		f := field{strings.ToLower(string(before)), bytes.TrimSuffix(value, []byte("\r\n"))}
		if !ok || !isFieldName(f.name) {
			// White space before the colon is obsolete (RFC 5322 section 4.5). Some readers take such a line for a
			// field, others do not.
			return nil, smtpserver.Refuse(554, "5.6.0", "Line %d of the header is no field: a name without spaces and a colon "+
				"must begin it, and an empty line must stand before the text",
				1+bytes.Count(raw[:len(raw)-len(rest)-n], []byte("\n")))
		}
		if atMostOnce[f.name] && h.has[f.name] {
			return nil, refuseField(f.name, "The header has the field %s more than once", f.name)
		}
		if addressFields[f.name] && hasControl(f.value) {
			return nil, refuseField(f.name, "The field %s has a control character; remove it", f.name)
		}
		if count++; f.name == "received" {
			hops++
		}
		if count > maxFields || len(raw)-len(rest) > maxHeader {
			return nil, smtpserver.Refuse(554, "5.6.0", "The header is too large: the limits are %d fields and %d octets",
				maxFields, maxHeader)
		}
		h.has[f.name] = true
		if senderFields[f.name] {
			h.senders = append(h.senders, f)
		}
		if !removedFields[f.name] && !strings.HasPrefix(f.name, ownPrefix) {
			h.kept = append(h.kept, whole...)
		}
	}
	if hops > maxHops {
		return nil, smtpserver.Refuse(554, "5.4.6", "The message has come through %d hosts: it goes round in a circle", hops)
	}
	if h.body = rest; len(rest) == 0 {
		h.body = []byte("\r\n")
	}
	h.eightBit = bytes.ContainsFunc(h.kept, func(r rune) bool { return r > '~' })
	return h, nil
}

// from returns the sender of the message. Each field that names a sender must have one mailbox that all readers
// interpret in the same way. All these mailboxes must be at one domain, which the team has verified and which signs the
// message.
func (h *header) from(smtputf8 bool) (from message.Address, r *smtpserver.Refusal) {
	if !h.has["from"] {
		return from, refuseField("from", "The header has no From field")
	}
	others := map[string]string{} // domains by field
	for _, f := range h.senders {
		a, err := message.ReadFrom(f.value, smtputf8)
		switch {
		case err != nil:
			return from, refuseField(f.name, "The field %s must have one address in the form Name <user@example.com>. %s",
				f.name, err)
		case f.name == "from":
			from = a
		default:
			others[f.name] = a.Domain
		}
	}
	for name, domain := range others {
		if domain != from.Domain {
			return from, refuseField(name, "The field %s must have an address at %s, the domain of the From field; "+
				"leave it out, and use Reply-To for answers", name, from.Domain)
		}
	}
	return from, nil
}

// refuseField refuses a field. For fields that name the sender and for Reply-To, the code 550 says that the message
// will never be accepted.
func refuseField(name, format string, a ...any) *smtpserver.Refusal {
	if senderFields[name] || name == "reply-to" {
		return smtpserver.Refuse(550, "5.6.0", format, a...)
	}
	return smtpserver.Refuse(554, "5.6.0", format, a...)
}

// hasControl reports whether a value contains a control character other than tabs and line breaks.
func hasControl(value []byte) bool {
	for _, c := range value {
		if c < ' ' && c != '\t' && c != '\r' && c != '\n' || c == 0x7f {
			return true
		}
	}
	return false
}

// fieldLength returns the length of the field at the start of b, including folded lines and the line end.
func fieldLength(b []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], '\n')
		if i < 0 {
			return len(b)
		}
		at += i + 1
		if at == len(b) || b[at] != ' ' && b[at] != '\t' {
			return at
		}
	}
}

func isFieldName(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return s != ""
}
