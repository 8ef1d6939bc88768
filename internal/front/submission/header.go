package submission

import (
	"bytes"
	"strings"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// Limits on a message's header.
const (
	maxHeader = 256 << 10 // bytes
	maxFields = 1000
	maxHops   = 50 // maximum number of Received fields, to detect mail loops (RFC 5321 section 6.3)
)

// removedFields lists header fields that are removed from the sent message. Some of these fields set an option for the
// submission service, and some would reveal recipients to each other. The others may be added only by a receiving host
// (RFC 8601 section 5).
var removedFields = map[string]bool{"bcc": true, "resent-bcc": true, "return-path": true,
	"authentication-results": true, "resend-idempotency-key": true, "postrider-idempotency-key": true}

// ownPrefix is the prefix of Postrider's own header fields. Unknown fields with this prefix are also removed, so that
// clients cannot send fields that later versions will define.
const ownPrefix = "x-postrider-"

// atMostOnce lists fields that may occur only once in a message (RFC 5322 section 3.6). If such a field occurred twice,
// mail programs could show the one that was not checked and signed.
var atMostOnce = map[string]bool{"from": true, "sender": true, "reply-to": true, "to": true, "cc": true,
	"subject": true, "date": true, "message-id": true, "mime-version": true, "content-type": true,
	"content-transfer-encoding": true}

// senderFields lists the header fields that name a message's author or sender.
var senderFields = map[string]bool{"from": true, "sender": true, "resent-from": true, "resent-sender": true}

// addressFields lists the header fields that contain mailboxes. Fields that are also in senderFields contain a single
// mailbox, which is parsed strictly.
var addressFields = map[string]bool{"from": true, "sender": true, "resent-from": true, "resent-sender": true,
	"reply-to": true, "to": true, "cc": true, "resent-to": true, "resent-cc": true, "resent-reply-to": true}

// header is the parsed header of a message.
type header struct {
	kept     []byte          // the fields to send, unchanged
	body     []byte          // the empty line and everything after it
	has      map[string]bool // names of the header's fields, in lower case
	senders  []field         // fields that name the author or the sender
	eightBit bool            // whether kept contains non-ASCII characters
}

// field is a header field.
type field struct {
	name  string // in lower case
	value []byte // folded, without the final line ending
}

// split splits a message with CRLF line endings into header and body, and checks the header's syntax. The field kept is
// a copy, but body shares memory with raw.
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
			// White space before the colon is obsolete (RFC 5322 section 4.5) and is refused, because only some parsers treat
			// such a line as a field.
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

// from returns the message's sender. Each sender field must contain one mailbox that all parsers interpret in the same
// way. The mailboxes in all sender fields must be at the same domain. The team must have verified that domain, because
// it signs the message.
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

// refuseField returns the refusal for an invalid header field. For sender fields and Reply-To, the reply code is 550,
// which tells clients that the message will never be accepted.
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

// fieldLength returns the length of the header field at the start of b, including folded lines and the final line
// ending.
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
