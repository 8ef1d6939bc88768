package submission

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzSplit checks that split removes the fields for Postrider, such as X-Postrider-Tag and Bcc, and keeps all other
// fields unchanged and in order.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"From: a@b.c\r\nBcc: x\r\n y\r\nTo: z\r\n\r\nbody", "From : a\r\n\tb",
		"X-Postrider-Tag: a=b\r\nFrom:\r\n a@b.c\r\nSender: <a@b.c>\r\n\r\n", "\r\n", "", "Bcc:\r\n", "a:b\r\n \r\n\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		before := bytes.Clone(raw)
		h, refused := split(raw)
		if !bytes.Equal(before, raw) {
			t.Fatal("the message was changed")
		}
		if refused != nil {
			return
		}
		if !bytes.HasPrefix(h.body, []byte("\r\n")) {
			t.Errorf("the body begins with %.10q", h.body)
		}
		if from, refused := h.from(true); refused == nil && from.Domain == "" {
			t.Error("taken from nobody")
		}
		at := 0
		for rest := h.kept; len(rest) > 0; {
			n := fieldLength(rest)
			name, _, _ := strings.Cut(string(rest[:n]), ":")
			if name = strings.ToLower(name); removedFields[name] || strings.HasPrefix(name, ownPrefix) {
				t.Errorf("kept: %q", rest[:n])
			}
			i := bytes.Index(raw[at:], rest[:n])
			if i < 0 {
				t.Fatalf("%q is not of the message", rest[:n])
			}
			at += i + n
			rest = rest[n:]
		}
	})
}

// The limits for headers are exact, and each refusal states its cause.
func TestBoundsOfHeaders(t *testing.T) {
	x := func(n int) string { return "X: " + strings.Repeat("x", n-len("X: \r\n")) + "\r\n" }
	for _, c := range []struct {
		name, header string
		says         string // "" means that the header is accepted
	}{
		{"as many fields as may be", strings.Repeat("X-A: b\r\n", maxFields), ""},
		{"a field more", strings.Repeat("X-A: b\r\n", maxFields+1), "too large"},
		{"as large as may be", x(maxHeader), ""},
		{"one byte larger", x(maxHeader + 1), "too large"},
		{"as many hosts as may be", strings.Repeat("Received: x\r\n", maxHops), ""},
		{"a host more", strings.Repeat("Received: x\r\n", maxHops+1), "circle"},
		{"twice the same", "Subject: a\r\nsubject: b\r\n", "more than once"},
		{"twice what may be", "X-A: a\r\nX-A: b\r\n", ""},
		{"a control character", "To: a\x1f@one.example\r\n", "control"},
		{"a delete", "To: a\x7f@one.example\r\n", "control"},
		{"a tab and a fold", "To: a@one.example,\r\n\tb@one.example, c@one.example\r\n", ""},
		{"a control character that reaches no parser", "X-A: a\x01\r\n", ""},
		{"a name with a space", "X A: b\r\n", "Line 1"},
		{"a space before the colon of the second", "X-A: b\r\nTo : a@one.example\r\n", "Line 2"},
		{"no colon in the third, behind a fold", "X-A: b\r\n c\r\nX-B\r\n", "Line 3"},
		{"no name", ": b\r\n", "Line 1"},
		{"the last character of a name", "X~: b\r\n", ""},
		{"one behind it", "X\x7f: b\r\n", "Line 1"},
	} {
		h, refused := split([]byte(c.header + "\r\nHello."))
		if c.says == "" && (refused != nil || string(h.kept) != c.header || string(h.body) != "\r\nHello.") {
			t.Errorf("%s: %v", c.name, refused)
		}
		if c.says != "" && (refused == nil || !strings.Contains(refused.Error(), c.says)) {
			t.Errorf("%s: %v, want %q", c.name, refused, c.says)
		}
	}
	for text, want := range map[string]bool{"X-A: ~\r\n": false, "X-A: \x7f\r\n": true, "X-A: é\r\n": true,
		"Bcc: é\r\n": false} {
		if h, refused := split([]byte(text)); refused != nil || h.eightBit != want || string(h.body) != "\r\n" {
			t.Errorf("%q: %+v, %v", text, h, refused)
		}
	}
}
