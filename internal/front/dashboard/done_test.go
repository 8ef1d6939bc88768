package dashboard

import (
	"encoding/base64"
	"strings"
	"testing"
	"unicode/utf8"
)

// A long sentence is cut between two characters.
func TestEncodeDone(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "a", "ab", "abc"} {
		text, err := base64.RawURLEncoding.DecodeString(encodeDone(before + strings.Repeat("\U0001f600", doneMax)))
		if err != nil || !utf8.Valid(text) || len(text) > doneMax || len(text) < doneMax-utf8.UTFMax {
			t.Errorf("after %q: %q, %v", before, text, err)
		}
	}
}
