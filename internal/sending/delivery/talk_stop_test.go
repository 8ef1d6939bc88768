package delivery

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// TestStopInAConversation stops a node either before or after it sends the final dot of a message. Before the final
// dot, the job is released unchanged. After the final dot, the node waits for the host's answer. In both cases, the
// host receives exactly one copy of the message.
func TestStopInAConversation(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before the message", "after the message"} {
		t.Run(when, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				ctx, stop := context.WithCancel(t.Context())
				answers := func(asked string) string {
					if asked == when {
						stop()
					}
					return ""
				}
				mx := smtptest.NewServer(t, smtptest.Config{
					Rcpt: func(string, string) string { return answers("before the message") },
					Data: func(smtptest.Message) string { return answers("after the message") },
				})
				n := one(mx.Addr)
				f := newFixture(t, d, n.config(1), n.dns)
				x := f.send(address(1))
				first := jobs.NewRunner(d, f.Queue, slog.New(slog.DiscardHandler), time.Minute)
				first.Handle(f.service.Kind())
				if err := first.Run(ctx); err != nil {
					t.Fatal(err)
				}
				want := 0
				if when == "after the message" {
					want = 1
				}
				if got := len(mx.Messages()); got != want || f.jobsLeft() != 1-want || len(f.attempts(x)) != want {
					t.Fatalf("after the stop the host has %d copies, %d jobs are left, attempts %+v", got, f.jobsLeft(), f.attempts(x))
				}
				if want == 0 {
					f.run()
				}
				f.wait(x, events.EmailDelivered)
				if got := len(mx.Messages()); got != 1 {
					t.Errorf("the host got %d copies", got)
				}
			})
		})
	}
}
