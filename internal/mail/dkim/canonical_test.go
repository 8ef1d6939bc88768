package dkim

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
)

// TestHashBody holds the relaxed body algorithm to what RFC 6376 section 3.4.4 and 3.4.5 say in words.
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
	// The hash of an empty body is given in RFC 6376 section 3.4.4.
	sum := hashBody(nil)
	if got := base64.StdEncoding.EncodeToString(sum[:]); got != "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=" {
		t.Errorf("empty body hashes to %s", got)
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

// BenchmarkCanonical is what a signature costs beside the key operation; most of it is SHA-256, shown for comparison.
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
			msg := []byte("Date: Wed, 04 Mar 2026 05:06:07 +0000\r\nFrom: Example <hello@example.com>\r\nTo: bob@example.net\r\n" +
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
