package erasure

import (
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const unicodeEscape = len(`\u0000`)

// percentEscape is the length of a percent-encoded byte, such as %40 (RFC 3986 section 2.1).
const percentEscape = len("%00")

// firstOf returns the first character of a string and the character's length in bytes, or 0 for an empty string. A JSON
// escape (RFC 8259 section 7) and a percent-encoded character are decoded.
func firstOf(text string) (r rune, size int) {
	if r, size := firstPercent(text); size > 0 {
		return r, size
	}
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
	if r, size := lastPercent(text); size > 0 {
		return r, size
	}
	return utf8.DecodeLastRuneInString(text)
}

// firstPercent decodes the percent-encoded character at the start of a text. If there is none, the size is 0.
func firstPercent(text string) (r rune, size int) {
	var encoded []byte
	for len(encoded) < utf8.UTFMax {
		b, ok := percent(text[size:])
		if !ok {
			break
		}
		encoded, size = append(encoded, b), size+percentEscape
		if r, n := utf8.DecodeRune(encoded); n == len(encoded) && (r != utf8.RuneError || n > 1) {
			return r, size
		}
	}
	return 0, 0
}

// lastPercent is like firstPercent, but decodes the character at the end of the text.
func lastPercent(text string) (r rune, size int) {
	for n := 1; n <= utf8.UTFMax && n*percentEscape <= len(text); n++ {
		tail := text[len(text)-n*percentEscape:]
		if r, size := firstPercent(tail); size == len(tail) {
			return r, size
		}
	}
	return 0, 0
}

// percent decodes the percent-encoded byte at the start of a text.
func percent(text string) (b byte, ok bool) {
	if len(text) < percentEscape || text[0] != '%' {
		return 0, false
	}
	n, err := strconv.ParseUint(text[1:percentEscape], 16, 8)
	return byte(n), err == nil
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
