package smtpserver

import (
	"slices"
	"strings"
	"testing"
)

// Every reply line is printable and has at most 480 bytes of text. wrap splits longer lines, at a space if possible.
func TestWrap(t *testing.T) {
	t.Parallel()
	x := func(n int) string { return strings.Repeat("x", n) }
	for text, want := range map[string][]string{
		"": {""}, " ~": {" ~"}, "a\x1fb\x7fc\td": {"a?b?c?d"}, "é": {"?"}, "a\nb": {"a", "b"}, "a\r\nb\r": {"a", "b"},
		"a\rb": {"a?b"},
		x(480): {x(480)}, x(481): {x(480), "x"}, x(960): {x(480), x(480)}, x(479) + " x": {x(479), "x"}, x(480) +
			" x": {x(480), "x"}, x(400) + " " + x(400): {x(400), x(400)},
		"a " + x(480): {"a", x(480)}, " " + x(480): {" " + x(479), "x"}, x(300) + " " + x(100) + " " +
			x(100): {x(300) + " " + x(100), x(100)},
	} {
		if got := wrap(text); !slices.Equal(got, want) {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

// The result of a check does not depend on how the message is divided into chunks.
func TestCheck(t *testing.T) {
	t.Parallel()
	tooLarge := Refuse(552, "5.3.4", "The message is too large: the limit is %d octets", 12)
	for text, want := range map[string]*Refusal{
		"": nil, "a\r\n": nil, "abcd\r\n\r\nabcd": nil, "abcde\r\n": longLine, "abcdef": longLine, "a\r\nabcde\r\n": longLine,
		"\n": bareEnd, "a\n": bareEnd,
		"a\rb": bareEnd, "\r\r\n": bareEnd, "a\r\n\n": bareEnd, "a\r": bareEnd, "\r": bareEnd, "a\r\n\rb": bareEnd,
		"ab\r\ncd\r\nef\r\n": nil, "ab\r\ncd\r\nef\r\ng": tooLarge,
	} {
		for size := 1; size <= max(len(text), 1); size++ {
			k := check{left: 12, maxSize: 12, maxLine: 4}
			for rest := []byte(text); len(rest) > 0; rest = rest[min(size, len(rest)):] {
				k.look(rest[:min(size, len(rest))])
			}
			k.last()
			if (k.err == nil) != (want == nil) || want != nil && k.err.Error() != want.Error() {
				t.Errorf("%q in pieces of %d: %v, want %v", text, size, k.err, want)
			}
		}
	}
}
