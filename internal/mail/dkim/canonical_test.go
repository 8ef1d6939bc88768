package dkim

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestHashBody checks the relaxed body algorithm against the rules and examples in RFC 6376 sections 3.4.4 and 3.4.5.
func TestHashBody(t *testing.T) {
	t.Parallel()
	for body, relaxed := range map[string]string{
		"":                             "",
		"\r\n":                         "",
		"\r\n\r\n \r\n":                "",
		" \t":                          "",
		"a":                            "a\r\n",
		"a\r\n":                        "a\r\n",
		"a\r\n\r\n\r\n":                "a\r\n",
		" C \r\nD \t E\r\n\r\n\r\n":    " C\r\nD E\r\n",
		"\r\na\r\n\r\n\r\nb\r\n":       "\r\na\r\n\r\n\r\nb\r\n",
		"a\nb\n":                       "a\r\nb\r\n",
		"a\r\n\nb\r\n":                 "a\r\n\r\nb\r\n",
		"a\r\nb \r\nc\r\nd\r\n \r\ne":  "a\r\nb\r\nc\r\nd\r\n\r\ne\r\n",
		"a\rb\r\n":                     "a\rb\r\n",
		"x  \r\n\r\n\r\ny\tz\r\n \r\n": "x\r\n\r\n\r\ny z\r\n",
	} {
		if got, want := hashBody([]byte(body)), sha256.Sum256([]byte(relaxed)); got != want {
			t.Errorf("body %q is not hashed as %q", body, relaxed)
		}
	}
	// RFC 6376 section 3.4.4 gives the hash of an empty body.
	sum := hashBody(nil)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" {
		t.Errorf("empty body hashes to %s", got)
	}
}

// hashBody replaces each run of white space in a line with one space, and removes white space at the end of a line.
func TestHashBodyAnywhere(t *testing.T) {
	t.Parallel()
	runs := regexp.MustCompile("[ \t]+")
	for size := range 34 {
		for at := range size + 1 {
			for _, run := range []string{" ", "  ", "\t", " \t", "\t\t ", "   ", "a", "\xa0", "\t!  "} {
				for _, others := range []string{"x", "x ", "!"} {
					line := strings.Repeat(others, size)[:size]
					line = line[:at] + run + line[at:]
					relaxed := strings.TrimSuffix(runs.ReplaceAllString(line, " "), " ")
					if relaxed != "" || at > 0 {
						relaxed += "\r\n"
					}
					relaxed = strings.TrimPrefix(relaxed, "\r\n")
					if got, want := hashBody([]byte(line+"\r\n")), sha256.Sum256([]byte(relaxed)); got != want {
						t.Fatalf("body %q is not hashed as %q", line, relaxed)
					}
				}
			}
		}
	}
}

// hashBody hashes spans of any length, in the right order.
func TestHashLongBodies(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 2000, 4093, 4094, 4095, 4096, 4097, 9000} {
		clean, odd := strings.Repeat("x", size)+"\r\n", strings.Repeat("y", size)+"  z\r\n"
		body := clean + odd + clean + "\r\n\r\n" + odd + odd + "a\n" + clean
		if got, want := hashBody([]byte(body)),
			sha256.Sum256([]byte(strings.ReplaceAll(strings.ReplaceAll(body, "  ", " "), "a\n", "a\r\n"))); got != want {
			t.Errorf("lines of %d bytes", size)
		}
	}
}

func TestSplitHeader(t *testing.T) {
	t.Parallel()
	for msg, want := range map[string]struct {
		fields []string
		body   string
	}{
		"": {nil, ""}, "\n": {nil, ""}, "\r\n": {nil, ""}, "\nFrom: a": {nil, "From: a"}, "A: b": {[]string{"A: b"}, ""},
		"A: b\r\n":      {[]string{"A: b"}, ""},
		"A: b\r\n\r\nc": {[]string{"A: b"}, "c"}, "A: b\n\nc": {[]string{"A: b"}, "c"},
		"A: b\r\n c\r\n\td\r\nE: f\r\n\r\n\r\ng": {[]string{"A: b\r\n c\r\n\td", "E: f"}, "\r\ng"},
		"A: b\n\r\nc":                            {[]string{"A: b"}, "c"}, "A: b\r": {[]string{"A: b\r"}, ""},
		" a\nB: c": {[]string{" a", "B: c"}, ""},
		"A: b\n ":  {[]string{"A: b\n "}, ""},
	} {
		fields, body := splitHeader([]byte(msg))
		var got []string
		for _, f := range fields {
			got = append(got, string(f.raw))
		}
		if !slices.Equal(got, want.fields) || string(body) != want.body {
			t.Errorf("%q: %q and %q, want %q and %q", msg, got, body, want.fields, want.body)
		}
	}
}

func TestIsName(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]bool{
		"azAZ09-_.example": true, "a": true, "": false, ".a": false, "a.": false, "a..b": false, "a`": false, "a{": false,
		"a@": false, "a[": false, "a/": false, "a:": false,
		"a;": false, "a b": false, "a\r\n": false, "é": false, strings.Repeat("a", 253): true,
		strings.Repeat("a", 254): false,
	} {
		if isName(s) != want {
			t.Errorf("%.20q is not %v", s, want)
		}
	}
}

// appendFolded writes lines of at most 76 bytes, and fills each line before it starts the next one.
func TestSignatureLines(t *testing.T) {
	t.Parallel()
	for size := range 400 {
		out := string(appendFolded(nil, make([]byte, size)))
		lines := strings.Split(strings.TrimSuffix(out, "\r\n"), "\r\n  ")
		for i, line := range lines {
			if len(line) > 72 || i < len(lines)-1 && len(line) != 72 || i > 0 && line == "" {
				t.Errorf("%d bytes: line %d has %d", size, i, len(line))
			}
		}
		if got, err := base64.StdEncoding.DecodeString(strings.Join(lines, "")); err != nil || len(got) != size {
			t.Errorf("%d bytes became %d, %v", size, len(got), err)
		}
	}
}

func TestAppendField(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"A: X":                    "a:X\r\n",
		"B : Y\t\r\n\tZ  ":        "b:Y Z\r\n",
		"Subject:":                "subject:\r\n",
		"Subject: \r\n ":          "subject:\r\n",
		"X:a":                     "x:a\r\n",
		"X-Y: a:  b\r\n  c\r\n d": "x-y:a: b c d\r\n",
		"X: \xc3\xa4  \xff":       "x:\xc3\xa4 \xff\r\n",
	} {
		if got := string(appendField(nil, []byte(raw))); got != want {
			t.Errorf("%q became %q, want %q", raw, got, want)
		}
	}
}

// BenchmarkCanonical measures the time to sign a message, without the private-key operation. Most of that time is spent
// in SHA-256, which a separate benchmark measures for comparison.
func BenchmarkCanonical(b *testing.B) {
	b.Run("sha256 alone", func(b *testing.B) {
		body := make([]byte, 10_000)
		b.SetBytes(int64(len(body)))
		for b.Loop() {
			sha256.Sum256(body)
		}
	})
	for _, kind := range []struct{ name, line string }{
		{"clean", "<td style=3D\"padding:12px 16px;color:#00ff00\">Item of your order, shipped=\r\n"},
		{"indented", "    <td style=3D\"padding:12px;color:#00ff00\">Item of your order, shipped=\r\n"},
		{"base64", strings.Repeat("QUJD", 19) + "\r\n"},
	} {
		b.Run(kind.name, func(b *testing.B) {
			msg := []byte("Date: Wed, 04 Mar 2026 05:06:07 +0000\r\nFrom: Example <hello@example.com>\r\nTo: " +
				"bob@example.net\r\n" +
				"Subject: Your order has shipped\r\nMessage-ID: <0195b2c4@example.com>\r\nMIME-Version: 1.0\r\n" +
				fmt.Sprintf("Content-Type: text/html\r\n\r\n%s", strings.Repeat(kind.line, 10_000/len(kind.line))))
			b.SetBytes(int64(len(msg)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := canonicalize(msg); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
