package delivery

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// A team's transactional mail does not wait behind its bulk mail to the same destination, even if the connections for
// bulk mail stall.
func TestBulkLeavesSlotsAtADestination(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := newGate(t)
		n, cfg, hangs := hanging(t, "Precedence: bulk", g)
		cfg.LaneConnections = 4
		f := newFixture(t, d, cfg, n.dns)
		bulk := func(n int) {
			var all []emails.Send
			for i := range n {
				text := "News"
				all = append(all, emails.Send{From: "news@" + from, To: []string{fmt.Sprintf("b%d@example.net", i)},
					Subject: "News", Text: &text,
					Headers: []message.Field{{Name: "Precedence", Value: "bulk"}}})
			}
			if _, err := f.Emails.SendBatch(t.Context(), f.Acme, all, false, emails.Idempotency{}); err != nil {
				t.Fatal(err)
			}
		}
		bulk(20)
		f.run()
		f.await(events.EmailDelivered, 20)
		hangs.Store(true)
		bulk(100)
		g.full(t, 3)
		for i := range 3 {
			f.wait(f.send(address(i)), events.EmailDelivered)
		}
		if g.highest() != 3 || f.count(events.EmailDelivered) != 23 {
			t.Errorf("%d places of 4 were taken by bulk mail, %d emails delivered", g.highest(), f.count(events.EmailDelivered))
		}
	})
}
