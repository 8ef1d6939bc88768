package tlsreports

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/mail/tlsrpt"
)

// The memory for counts is limited, also if very many domains have very many hosts. Sessions that do not fit are lost,
// and their number is known.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	c := newCounts()
	for day := range int64(3) {
		for i := range maxPending + 10 {
			c.add(dayDomain{day, fmt.Sprintf("d%d.example", i%200)}, Session{Host: fmt.Sprintf("mx%d.example", i),
				Result: tlsrpt.NoSTARTTLS})
		}
		select {
		case <-c.full:
		default:
			t.Error("the counts are not stored early")
		}
		pending, lost := c.take()
		rows := 0
		for _, e := range pending {
			rows += len(e.sessions)
		}
		if rows != maxPending || lost != 10 {
			t.Errorf("%d rows, and %d sessions are lost", rows, lost)
		}
		if c.rows > maxSeenRows || c.rows < maxSeenRows/2 && day > 0 {
			t.Errorf("%d combinations are remembered", c.rows)
		}
	}
}
