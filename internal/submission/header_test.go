package submission

import (
	"bytes"
	"strings"
	"testing"
)

// FuzzSplit cuts anything. What is kept is of the message, in its order, and has none of the fields that must go.
func FuzzSplit(f *testing.F) {
	for _, s := range []string{"From: a@b.c\r\nBcc: x\r\n y\r\nTo: z\r\n\r\nbody", "From : a\r\n\tb", "X-Postrider-Tag: a=b\r\nFrom:\r\n a@b.c\r\nSender: <a@b.c>\r\n\r\n", "\r\n", "", "Bcc:\r\n", "a:b\r\n \r\n\r\n"} {
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
			if name = strings.ToLower(name); removed[name] || strings.HasPrefix(name, ownPrefix) {
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
