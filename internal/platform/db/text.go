package db

import "strings"

// Text returns an untrusted text as both engines store it: valid UTF-8 without NUL, and at most limit octets long.
// What is not UTF-8 becomes U+FFFD.
func Text(text string, limit int) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "")
	}
	return text
}
