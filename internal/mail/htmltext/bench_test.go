package htmltext

import (
	"strconv"
	"testing"

	"github.com/postrider/postrider/internal/mail/mailtest"
)

func BenchmarkFromHTML(b *testing.B) {
	for _, size := range []int{10_000, 100_000} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			html := mailtest.Newsletter(size)
			b.SetBytes(int64(len(html)))
			b.ReportAllocs()
			for b.Loop() {
				FromHTML(html)
			}
		})
	}
}
