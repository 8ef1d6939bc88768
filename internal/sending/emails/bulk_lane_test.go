package emails_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Bulk mail has a separate lane, both for immediate and for scheduled emails.
func TestBulkHasItsLane(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		lane := emails.Lane("one.example", f.Acme.TeamID, true)
		s := hello("a@one.example")
		s.Headers = []message.Field{{Name: "Precedence", Value: "bulk"}}
		f.Send(s)
		s.ScheduledAt = time.Now().Add(time.Second).Format(time.RFC3339)
		id := f.Send(s)
		f.release(t, func() bool { return f.state(id) == emails.Queued })
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`, lane); n != 2 {
			t.Errorf("%d deliveries stand in the lane %s, want 2", n, lane)
		}
		f.Send(hello("a@one.example"))
		if n := f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'delivery' AND lane = $1`, lane); n != 2 {
			t.Error("mail that is not bulk stands in its lane")
		}
	})
}
