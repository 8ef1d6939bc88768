package decode

import (
	"bytes"
	"io"
	"mime"
	"strings"
)

// IsValidWord reports whether s is a single encoded word (RFC 2047 section 2) in a known charset. A valid word contains
// no control characters except those that switch the charset (RFC 2237).
func IsValidWord(s string) bool {
	w, rest, ok := cutWord(s)
	if !ok || rest != "" || w.text == "" {
		return false
	}
	if _, err := strictWord.Decode(s); err != nil {
		return false
	}
	switch strings.ToLower(w.charset) {
	case "utf-8", "utf8", "us-ascii", "ascii":
	default:
		if charsetByName(w.charset) == nil {
			return false
		}
	}
	const shiftOut, shiftIn, escape = 0x0e, 0x0f, 0x1b
	return !bytes.ContainsFunc(w.content(nil), func(r rune) bool {
		return (r < ' ' && r != shiftOut && r != shiftIn && r != escape) || r == 0x7f
	})
}

// strictWord checks only the syntax of encoded words, more strictly than cutWord.
var strictWord = mime.WordDecoder{CharsetReader: func(_ string, content io.Reader) (io.Reader, error) {
	return content, nil
}}
