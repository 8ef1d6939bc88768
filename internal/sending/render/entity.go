package render

import (
	"bytes"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// appendUnescaped appends an attribute value and replaces its character references with characters, according to the
// HTML standard's rules for attributes. A reference without a semicolon is replaced only if no letter, digit or equals
// sign follows, so https://example.com/?a=1&copy=2 keeps its parameter. Replacing common references needs no memory
// allocation.
func appendUnescaped(dst, value []byte) []byte {
	for {
		i := bytes.IndexByte(value, '&')
		if i < 0 {
			return append(dst, value...)
		}
		dst = append(dst, value[:i]...)
		n := referenceLen(value[i:])
		dst = appendReferred(dst, value[i:i+n])
		value = value[i+n:]
	}
}

// referenceLen returns the length of the character reference at the start of value, or 1 if the & does not start a
// reference.
func referenceLen(value []byte) int {
	if len(value) > 1 && value[1] == '#' {
		i, digit := len("&#"), isDigit
		if i < len(value) && value[i]|0x20 == 'x' {
			i, digit = i+1, isHexDigit
		}
		from := i
		for i < len(value) && digit(value[i]) {
			i++
		}
		switch {
		case i == from:
			return 1
		case i < len(value) && value[i] == ';':
			return i + 1
		}
		return i
	}
	i := len("&")
	for i < len(value) && (isDigit(value[i]) || isLetter(value[i])) {
		i++
	}
	switch {
	case i == len(value):
		return i
	case value[i] == ';':
		return i + 1
	case value[i] == '=':
		return 1
	}
	return i
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isHexDigit(c byte) bool { return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f' }

// appendReferred appends the character for a character reference, or the reference itself if it is unknown.
func appendReferred(dst, ref []byte) []byte {
	switch string(ref) {
	case "&":
		return append(dst, '&')
	case "&amp;", "&#38;", "&#x26;":
		return append(dst, '&')
	case "&#61;", "&#x3D;", "&#x3d;":
		return append(dst, '=')
	case "&#47;", "&#x2F;", "&#x2f;":
		return append(dst, '/')
	}
	text := html.UnescapeString(string(ref))
	// UnescapeString also replaces a reference if only the beginning of its name is known. In attributes, a reference
	// is ordinary text if only the beginning of its name is known.
	last, partial := text[len(text)-1], false
	switch {
	case ref[1] == '#':
	case ref[len(ref)-1] == ';':
		partial = last == ';' && text != ";"
	default:
		partial = isDigit(last) || isLetter(last)
	}
	if partial {
		return append(dst, ref...)
	}
	return append(dst, text...)
}

// target returns the URL that a browser would follow: the value without the white space that URL parsers ignore. The
// value is changed in place. If the result is not an absolute http or https URL with at most MaxTarget bytes, target
// returns false.
func target(value []byte) ([]byte, bool) {
	value = bytes.TrimFunc(value, func(r rune) bool { return r <= ' ' })
	cleaned := value[:0]
	for _, c := range value {
		switch {
		case c == '\t', c == '\n', c == '\r':
			continue
		case c < ' ', c == 0x7f:
			return nil, false
		}
		cleaned = append(cleaned, c)
	}
	scheme, rest, ok := bytes.Cut(cleaned, []byte("://"))
	if !ok || len(cleaned) > MaxTarget || len(rest) == 0 || strings.IndexByte("/\\?# ", rest[0]) >= 0 ||
		!utf8.Valid(cleaned) {
		return nil, false
	}
	return cleaned, bytes.EqualFold(scheme, []byte("http")) || bytes.EqualFold(scheme, []byte("https"))
}
