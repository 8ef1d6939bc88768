package message

import (
	"strings"
	"unicode/utf8"
)

// Limits on a header field, in bytes. The constant maxLine is the limit from RFC 5322 section 2.1.1. Lines are folded
// at wrapAt columns where possible.
const (
	maxLine       = 998
	wrapAt        = 76
	maxFieldName  = 76
	maxFieldValue = 16 << 10
)

// CheckField returns an error if a caller's header field must not be sent. The name must be a field name (RFC 5322
// section 2.2) of at most 76 bytes that is not reserved for the service. The value must be at most 16 KiB of UTF-8
// without control characters other than tab. It must be foldable into lines of at most 998 bytes (RFC 5322 section
// 2.1.1).
//
// A Message-ID field is accepted, because callers may pass on the fields of an existing message; Compose omits this
// field. Errors are *FieldError.
func CheckField(name, value string) error {
	if name == "" || len(name) > maxFieldName {
		return &FieldError{Name: name, Reason: "A header name must have 1 to 76 characters."}
	}
	for i := range len(name) {
		if name[i] <= ' ' || name[i] > '~' || name[i] == ':' {
			return &FieldError{Name: name,
				Reason: "A header name may have printable ASCII characters only, without spaces and colons."}
		}
	}
	if isReserved(name) {
		return &FieldError{Name: name, Reserved: true, Reason: "The header `" + name +
			"` is written by the service and cannot be set; use the field of the request that is made for it, if there is one."}
	}
	if len(value) > maxFieldValue {
		return &FieldError{Name: name, Reason: "The value of the header `" + name + "` is longer than 16 KiB."}
	}
	ascii := true
	for i := range len(value) {
		c := value[i]
		if c < ' ' && c != '\t' || c == 0x7f {
			return &FieldError{Name: name, Reason: "The value of the header `" + name +
				"` has a line break or another control character; remove it."}
		}
		ascii = ascii && c < utf8.RuneSelf
	}
	if !ascii {
		if !utf8.ValidString(value) {
			return &FieldError{Name: name, Reason: "The value of the header `" + name + "` is not valid UTF-8."}
		}
		// This value contains non-ASCII characters, so it is written as encoded words, which can be folded anywhere.
		return nil
	}
	if len(name)+len(": ")+longestPiece(value) > maxLine {
		return &FieldError{Name: name, Reason: "The value of the header `" + name +
			"` has a part that makes a line longer than 998 characters; put spaces into it."}
	}
	return nil
}

// isReserved reports whether only the service or a relay may write the field. Reserved fields name the sender or the
// recipients, describe the message, its parts or its path, or state verification results. The fields for options of
// this service are also reserved.
func isReserved(name string) bool {
	lower := strings.ToLower(name)
	switch lower {
	case "from", "to", "cc", "bcc", "subject", "date", "sender", "reply-to", "received", "return-path", "delivered-to",
		"authentication-results", "received-spf", "domainkey-signature",
		"resend-idempotency-key", "postrider-idempotency-key":
		return true
	}
	for _, family := range [...]string{"mime-", "content-", "resent-", "arc-", "dkim-", "x-postrider-"} {
		if strings.HasPrefix(lower, family) {
			return true
		}
	}
	return false
}

// appendField writes a field, folded at 76 columns where possible. The value must not contain CR or LF.
func appendField(dst []byte, name, value string) []byte {
	dst = append(dst, name...)
	dst = append(dst, ':')
	value = strings.Trim(value, " \t")
	if value == "" {
		return append(dst, "\r\n"...)
	}
	dst = append(dst, ' ')
	column := len(name) + 2
	for first := true; value != ""; first = false {
		end := nextPiece(value)
		if !first && column+end > wrapAt {
			dst = append(dst, "\r\n"...)
			column = 0
		}
		dst = append(dst, value[:end]...)
		column += end
		value = value[end:]
	}
	return append(dst, "\r\n"...)
}

// nextPiece returns the length of value up to the next position where it may be folded, which is before a single space.
// Folding is never allowed at a tab or between several spaces, because mail clients interpret such folds differently.
func nextPiece(value string) int {
	for i := 1; i < len(value)-1; i++ {
		if value[i] == ' ' && !isWSP(value[i-1]) && !isWSP(value[i+1]) {
			return i
		}
	}
	return len(value)
}

// longestPiece returns the length of the longest unfoldable piece of value.
func longestPiece(value string) int {
	longest := 0
	for value != "" {
		end := nextPiece(value)
		longest = max(longest, end)
		value = value[end:]
	}
	return longest
}

func isWSP(c byte) bool { return c == ' ' || c == '\t' }
