package message

import (
	"bytes"
	"io"
	"mime/quotedprintable"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/htmltext"
	"github.com/postrider/postrider/internal/mail/mailtest"
)

func benchMessage() *Message {
	html := mailtest.Newsletter(10_000)
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

// This package has its own quoted-printable writer, which is faster than the one in the standard library: compare
// BenchmarkQuotedPrintable with BenchmarkQuotedPrintableStdlib.
func BenchmarkQuotedPrintable(b *testing.B) {
	html := mailtest.Newsletter(10_000)
	b.SetBytes(int64(len(html)))
	buf := make([]byte, 0, 20_000)
	for b.Loop() {
		buf = appendQuotedPrintable(buf[:0], html)
	}
}

func BenchmarkQuotedPrintableStdlib(b *testing.B) {
	html := mailtest.Newsletter(10_000)
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
