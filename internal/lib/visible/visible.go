// Package visible finds characters that a person does not see, or that change the order in which other characters are
// displayed. Such characters can hide text from a person, or make a name look like another one.
package visible

import (
	"fmt"
	"strings"
	"unicode"
)

// Hidden reports whether a character is invisible or only changes how others are displayed: control and format
// characters such as direction marks, private-use characters, tags, variation selectors, fillers, and separators of
// lines and paragraphs. Line breaks and tabs are not hidden.
func Hidden(r rune) bool {
	switch r {
	case '\n', '\r', '\t':
		return false
	case '\u2800': // a Braille pattern without dots
		return true
	}
	return unicode.In(r, unicode.Cf, unicode.Co, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Variation_Selector,
		unicode.Other_Default_Ignorable_Code_Point)
}

// Joiner reports whether a character joins or separates its neighbors, as some scripts and emoji need.
func Joiner(r rune) bool { return r == '\u200c' || r == '\u200d' }

// Show returns a text in which each hidden character is replaced by its code point, such as [U+202E]. Invalid UTF-8 is
// replaced by the replacement character.
func Show(s string) string {
	s = strings.ToValidUTF8(s, "\ufffd")
	if !strings.ContainsFunc(s, Hidden) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if Hidden(r) {
			fmt.Fprintf(&b, "[U+%04X]", r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
