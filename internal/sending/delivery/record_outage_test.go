package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// TestOutcomeOutlivesAnOutage stops the database while a host processes a message. The host's answer is recorded once
// the database is available again, and the host receives no second copy.
func TestOutcomeOutlivesAnOutage(t *testing.T) {
	t.Parallel()
	d, proxy := dbtest.Proxied(t, time.Second)
	mx := smtptest.NewServer(t, smtptest.Config{Data: func(smtptest.Message) string {
		proxy.Refuse()
		time.AfterFunc(3*time.Second, func() {
			if err := proxy.Pass(); err != nil {
				t.Error(err)
			}
		})
		return ""
	}})
	n := one(mx.Addr)
	f := newFixture(t, d, n.config(1), n.dns)
	x := f.send(address(1))
	f.run()
	f.wait(x, events.EmailDelivered)
	if n := len(f.attempts(x)); len(mx.Messages()) != 1 || n != 1 || f.jobsLeft() != 0 {
		t.Errorf("the host has %d copies, %d attempts are recorded, %d jobs left; want 1, 1, 0", len(mx.Messages()), n,
			f.jobsLeft())
	}
}
