package tlsreports

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// The memory for counts is limited, also if very many domains have very many hosts. Sessions that do not fit are lost,
// and their number is known.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	c := newCounts()
	for day := range int64(3) {
		for i := range maxPending + 10 {
			c.add(dailyreports.DayDomain{Day: day, Domain: fmt.Sprintf("d%d.example", i%200)},
				Session{Host: fmt.Sprintf("mx%d.example", i), Result: tlsrpt.NoSTARTTLS})
		}
		rows := 0
		c.Flush(func(pending entries, lost int) error {
			for _, e := range pending {
				rows += len(e.Rows)
			}
			if rows != maxPending || lost != 10 {
				t.Errorf("%d rows, and %d sessions are lost", rows, lost)
			}
			return nil
		})
		if c.rows > maxSeenRows || c.rows < maxSeenRows/2 && day > 0 {
			t.Errorf("%d combinations are remembered", c.rows)
		}
	}
}
