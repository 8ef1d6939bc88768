package db

import "strings"

// Text converts an untrusted string to a form that both engines can store: valid UTF-8 without NUL, and at most limit
// bytes long. Invalid bytes are replaced with U+FFFD.
func Text(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}
