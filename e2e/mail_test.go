package e2e

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"strings"
	"testing"
)

func random(t *testing.T, n int) []byte {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(rand.Reader, b); err != nil {
		t.Fatal(err)
	}
	return b
}

// multipart returns a message as a mail client would send it: text, HTML with an inline image, and two attachments.
func multipart(parts map[string][]byte) []byte {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\r\n", args...) }
	file := func(boundary, name, headers string) {
		line("--%s\r\n%s\r\nContent-Transfer-Encoding: base64\r\n", boundary, headers)
		text := base64.StdEncoding.EncodeToString(parts[name])
		for ; len(text) > 76; text = text[76:] {
			line("%s", text[:76])
		}
		line("%s", text)
	}
	line("From: Alice <alice@elsewhere.example>\r\nTo: anyone@acme.example\r\nSubject: " +
		"=?UTF-8?Q?Gr=C3=BC=C3=9Fe_through_Postfix?=")
	line("Message-ID: <1@elsewhere.example>\r\nDate: Wed, 04 Mar 2026 05:06:07 +0000\r\nMIME-Version: 1.0")
	line("Content-Type: multipart/mixed; boundary=mixed\r\n")
	line("--mixed\r\nContent-Type: multipart/related; boundary=related\r\n")
	line("--related\r\nContent-Type: multipart/alternative; boundary=alt\r\n")
	line("--alt\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nHello from afar.")
	line("--alt\r\nContent-Type: text/html; charset=utf-8\r\n\r\n<p>Hello from <img src=\"cid:picture\"></p>\r\n--alt--")
	file("related", "picture.png",
		"Content-Type: image/png\r\nContent-ID: <picture>\r\nContent-Disposition: inline; filename=picture.png")
	line("--related--")
	file("mixed", "report.pdf", "Content-Type: application/pdf\r\nContent-Disposition: attachment; filename=report.pdf")
	file("mixed", "naïve café.txt",
		"Content-Type: text/plain\r\nContent-Disposition: attachment; filename*=UTF-8''na%C3%AFve%20caf%C3%A9.txt")
	line("--mixed--")
	return []byte(b.String())
}
