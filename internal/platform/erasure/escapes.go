package erasure

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const unicodeEscape = len(`\u0000`)

// firstOf returns the first character of a string and the character's length in bytes, or 0 for an empty string. A JSON
// escape (RFC 8259 section 7) is decoded.
func firstOf(text string) (r rune, size int) {
	if !strings.HasPrefix(text, `\`) {
		return utf8.DecodeRuneInString(text)
	}
	if r, ok := escaped(text); ok {
		if low, ok := escaped(text[unicodeEscape:]); ok && utf16.IsSurrogate(r) {
			return utf16.DecodeRune(r, low), 2 * unicodeEscape
		}
		return r, unicodeEscape
	}
	if len(text) > 1 {
		if r, ok := short[text[1]]; ok {
			return r, 2
		}
	}
	return '\\', 1
}

// lastOf returns the last character of a string and the character's length in bytes. Like firstOf, lastOf decodes JSON
// escapes.
func lastOf(text string) (r rune, size int) {
	if at := len(text) - unicodeEscape; at >= 0 && begins(text, at) {
		if r, ok := escaped(text[at:]); ok {
			if before := at - unicodeEscape; utf16.IsSurrogate(r) && before >= 0 && begins(text, before) {
				if high, ok := escaped(text[before:]); ok {
					return utf16.DecodeRune(high, r), 2 * unicodeEscape
				}
			}
			return r, unicodeEscape
		}
	}
	if at := len(text) - 2; at >= 0 && begins(text, at) {
		if r, ok := short[text[at+1]]; ok {
			return r, 2
		}
	}
	return utf8.DecodeLastRuneInString(text)
}

// short maps the letter of each two-character JSON escape to the character that the escape encodes.
var short = map[byte]rune{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// begins reports whether an escape begins at the given offset, that is, whether the text has an unescaped backslash
// there.
func begins(text string, at int) bool {
	if text[at] != '\\' {
		return false
	}
	before := text[:at]
	return (len(before)-len(strings.TrimRight(before, `\`)))%2 == 0
}

// escaped decodes the escape \uXXXX at the start of a text and returns its UTF-16 code unit. If the text does not start
// with such an escape, ok is false.
func escaped(text string) (r rune, ok bool) {
	if len(text) < unicodeEscape || text[:2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(text[2:unicodeEscape], 16, 32)
	return rune(n), err == nil
}
