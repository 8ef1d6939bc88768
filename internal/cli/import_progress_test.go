package cli

import (
	"strings"
	"testing"
)

func TestProgress(t *testing.T) {
	t.Parallel()
	for _, terminal := range []bool{false, true} {
		var b strings.Builder
		p := progress{w: &b, terminal: terminal}
		for _, done := range []int64{0, 5, 15, 19, 50, 100} {
			i := watched{Size: 100, Processed: done}
			i.Counts.Total = done
			p.show(&i)
		}
		p.end()
		want := " 15%  15 rows, 0 failed\n 50%  50 rows, 0 failed\n100%  100 rows, 0 failed\n"
		if terminal {
			want = "\r[###############               ]  50%  50 rows, 0 failed\x1b[K" +
				"\r[##############################] 100%  100 rows, 0 failed\x1b[K\n"
		}
		if !strings.HasSuffix(b.String(), want) {
			t.Errorf("%q", b.String())
		}
	}
}
