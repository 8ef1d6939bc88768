package db

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for in, want := range map[string]string{"": "", "abcde": "abcde", "abcdef": "abcde", "abcdé": "abcd", "a\x00b": "ab",
		"\xff": "\uFFFD", "abcd\xff": "abcd", "\x00abcde": "abcde", strings.Repeat("x", 100): "xxxxx"} {
		if got := Text(in, 5); got != want || !utf8.ValidString(got) {
			t.Errorf("%q has become %q", in, got)
		}
	}
}
