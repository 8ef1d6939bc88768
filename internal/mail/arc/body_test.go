package arc

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/postrider/postrider/internal/mail/dkim"
)

// simple returns a body in simple form (RFC 6376 section 3.4.3).
func simple(body string) string {
	lines := strings.Split(body, "\n")
	for i := range lines[:len(lines)-1] {
		lines[i] = strings.TrimSuffix(lines[i], "\r")
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return strings.Join(append(lines, ""), "\r\n")
}

// FuzzBody compares the hash of a body that is read in pieces with that of package dkim, which signs messages, and with
// the hash of the whole simple form.
func FuzzBody(f *testing.F) {
	for _, body := range []string{"", "\r\n", "\n\r\n\n", "a", " \t\r\n", "a  b \t\r\n\r\n\r\n", "a\r\r\nb\n\nc\r",
		"\n\na\n \n\n", strings.Repeat("x ", 40_000)} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		want := dkim.HashBody([]byte(body))
		got, err := hashBody(t.Context(), strings.NewReader(body), true)
		if err != nil || !bytes.Equal(got, want[:]) {
			t.Errorf("relaxed %q: %x, %v", body, got, err)
		}
		text := simple(body)
		if text == "" {
			text = "\r\n"
		}
		want = sha256.Sum256([]byte(text))
		got, err = hashBody(t.Context(), iotest.OneByteReader(strings.NewReader(body)), false)
		if err != nil || !bytes.Equal(got, want[:]) {
			t.Errorf("simple %q: %x, %v", body, got, err)
		}
	})
}
