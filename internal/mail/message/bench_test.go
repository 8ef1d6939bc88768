package message

import (
	"bytes"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

// newsletterHTML is about n octets of HTML as template languages make it: nested tables, inline styles, links.
func newsletterHTML(n int) string {
	var b strings.Builder
	b.WriteString(`<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>News</title><style>td{padding:0}</style></head><body style="margin:0"><table role="presentation" width="100%"><tbody>`)
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, `
    <tr><td style="padding:12px 16px;font-family:Helvetica,Arial,sans-serif;font-size:14px;color:#%06x">
      <h2 style="margin:0">Item %d of your order</h2>
      <p>It left our house today &amp; will be with you soon. <a href="https://example.com/track/%d?ref=mail" style="color:#06c;text-decoration:none">Follow it on its way</a>, or write to us.</p>
    </td></tr>`, i*4099, i, i)
	}
	b.WriteString("\n</tbody></table></body></html>\n")
	return b.String()
}

func benchMessage() *Message {
	html := newsletterHTML(10_000)
	return &Message{
		ID:      "<0195b2c4-77aa-7c12-9d3e-0a1b2c3d4e5f@example.com>",
		Date:    time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC),
		From:    Address{Name: "Example Shop", Local: "hello", Domain: "example.com"},
		To:      []Address{{Local: "bob", Domain: "example.net"}},
		Subject: "Your order has shipped — follow it on its way",
		HTML:    html,
		Text:    htmltext.FromHTML(html),
		Headers: []Field{{"X-Entity-Ref-ID", "0195b2c4"}, {"List-Unsubscribe", "<https://example.com/u/0195b2c4>"}},
		Seed:    "0195b2c4-77aa-7c12-9d3e-0a1b2c3d4e5f",
	}
}

func BenchmarkCompose(b *testing.B) {
	m := benchMessage()
	b.SetBytes(int64(len(m.HTML) + len(m.Text)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Compose(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseAddress(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ParseAddress("Example Shop <hello@Example.com>"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkQuotedPrintable is to be compared with BenchmarkQuotedPrintableStdlib: its speed is why the package has
// its own writer.
func BenchmarkQuotedPrintable(b *testing.B) {
	html := newsletterHTML(10_000)
	b.SetBytes(int64(len(html)))
	buf := make([]byte, 0, 20_000)
	for b.Loop() {
		buf = appendQuotedPrintable(buf[:0], html)
	}
}

func BenchmarkQuotedPrintableStdlib(b *testing.B) {
	html := newsletterHTML(10_000)
	b.SetBytes(int64(len(html)))
	var buf bytes.Buffer
	for b.Loop() {
		buf.Reset()
		w := quotedprintable.NewWriter(&buf)
		if _, err := io.WriteString(w, html); err != nil {
			b.Fatal(err)
		}
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
