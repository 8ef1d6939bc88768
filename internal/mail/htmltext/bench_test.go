package htmltext

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
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

func BenchmarkFromHTML(b *testing.B) {
	for _, size := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			html := newsletterHTML(size)
			b.SetBytes(int64(len(html)))
			b.ReportAllocs()
			for b.Loop() {
				FromHTML(html)
			}
		})
	}
}
