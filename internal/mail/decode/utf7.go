package decode

import (
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// decodeUTF7 converts UTF-7 (RFC 2152) to UTF-8 in linear time. decodeUTF7 never fails. An invalid character in a
// base64 run becomes U+FFFD, and a run that is too short for a character is kept unchanged. MixedUTF8 decodes non-ASCII
// bytes. The result may contain control characters and HTML tags that were encoded in base64.
func decodeUTF7(b []byte) string {
	var out strings.Builder
	out.Grow(len(b))
	for at := 0; at < len(b); {
		plus := at
		for plus < len(b) && b[plus] != '+' {
			plus++
		}
		if direct := b[at:plus]; utf8.Valid(direct) {
			out.Write(direct)
		} else {
			out.WriteString(MixedUTF8(string(direct)))
		}
		if plus == len(b) {
			break
		}
		end := plus + 1
		for end < len(b) && base64Value(b[end]) >= 0 {
			end++
		}
		run := b[plus+1 : end]
		closed := end < len(b) && b[end] == '-'
		at = end
		switch {
		case len(run) >= 3: // a base64 digit has 6 bits, and a UTF-16 code unit has 16
			writeUTF16(&out, run)
		case len(run) == 0 && closed:
			out.WriteByte('+')
		default:
			out.WriteByte('+')
			out.Write(run)
			continue
		}
		if closed {
			at++
		}
	}
	return out.String()
}

// writeUTF16 decodes an unpadded base64 run as UTF-16 and writes its characters. If six or more bits remain after the
// last code unit, or if any remaining bit is set, writeUTF16 also writes U+FFFD.
func writeUTF16(out *strings.Builder, run []byte) {
	var bits, n uint32
	high := rune(0) // the first half of a surrogate pair, or 0
	for _, c := range run {
		bits = bits<<6 | uint32(base64Value(c))
		if n += 6; n < 16 {
			continue
		}
		n -= 16
		r := rune(bits >> n)
		bits &= 1<<n - 1
		if high != 0 {
			pair := utf16.DecodeRune(high, r)
			out.WriteRune(pair) // U+FFFD for half a surrogate pair
			high = 0
			if pair != utf8.RuneError {
				continue
			}
		}
		if 0xD800 <= r && r < 0xDC00 {
			high = r
			continue
		}
		out.WriteRune(r) // U+FFFD for half a surrogate pair
	}
	if high != 0 || n >= 6 || bits != 0 {
		out.WriteRune(utf8.RuneError)
	}
}
