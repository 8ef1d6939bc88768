package submission

import (
	"bytes"
	"strings"

	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// Limits of a header.
const (
	maxHeader = 256 << 10 // octets
	maxFields = 1000
	maxHops   = 50 // Received fields: a message that has more goes round in a circle (RFC 5321 section 6.3)
)

// removed are fields that are not passed on: they are for us, or would tell recipients of each other.
var removed = map[string]bool{"bcc": true, "resent-bcc": true, "return-path": true, "resend-idempotency-key": true,
	"postrider-idempotency-key": true, "x-postrider-tag": true, "x-postrider-topic": true, "x-postrider-topic-id": true}

// single are fields that a message has at most once (RFC 5322 section 3.6). Readers differ in which of two they show, so that
// what was checked and signed would not be what is read.
var single = map[string]bool{"from": true, "sender": true, "reply-to": true, "to": true, "cc": true, "subject": true,
	"date": true, "message-id": true, "mime-version": true, "content-type": true, "content-transfer-encoding": true}

// header is the header of a message, cut into what is sent and what it says.
type header struct {
	kept     []byte          // the fields that are passed on, as they came
	body     []byte          // the empty line and the rest
	has      map[string]bool // fields by name in lower case
	eightBit bool            // a field that is passed on is not ASCII
}

// split cuts a message, whose lines end with CRLF, and checks the form of its header. kept is new, body is part of raw.
func split(raw []byte) (*header, *smtpserver.Refusal) {
	h := &header{has: map[string]bool{}}
	count, hops := 0, 0
	rest := raw
	for len(rest) > 0 && !bytes.HasPrefix(rest, []byte("\r\n")) {
		n := fieldLength(rest)
		field := rest[:n]
		rest = rest[n:]
		before, _, ok := bytes.Cut(field, []byte(":"))
		name := strings.ToLower(string(bytes.TrimRight(before, " \t")))
		if !ok || !isFieldName(name) {
			return nil, smtpserver.Refuse(554, "5.6.0", "Line %d of the header is no field: an empty line must stand before the text",
				1+bytes.Count(raw[:len(raw)-len(rest)-n], []byte("\n")))
		}
		if single[name] && h.has[name] {
			return nil, smtpserver.Refuse(554, "5.6.0", "The header has the field %s more than once", name)
		}
		if count++; name == "received" {
			hops++
		}
		if count > maxFields || len(raw)-len(rest) > maxHeader {
			return nil, smtpserver.Refuse(554, "5.6.0", "The header is too large: the limits are %d fields and %d octets", maxFields, maxHeader)
		}
		h.has[name] = true
		if !removed[name] {
			h.kept = append(h.kept, field...)
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

// fieldLength is the length of the field that b begins with, its folds and line end included.
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
