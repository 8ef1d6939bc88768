package dashboard_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// An email that the outbox has captured is not called delivered. A bounce shows the host's answer word for word beside
// the verdict, not only in the transcript. A short time in the queue has a reason.
func TestCapturedAndReplies(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		id := b.send("laura@example.org", "One")
		b.delivered(id)
		page := v.shows("/app/emails/"+id, 200, "Captured", "captured by this installation", "No limit was reached",
			"milliseconds since the start of the conversation")
		for _, text := range []string{">Delivered", "The cause was not recorded", "word for word"} {
			if strings.Contains(page, text) {
				t.Errorf("the page of a captured email has %q", text)
			}
		}
		bounced := b.send("bounced@resend.dev", "Two")
		b.eventually("it bounces", func() bool {
			_, page := v.get("/app/emails/" + bounced)
			return strings.Contains(page, "Bounced")
		})
		page = v.shows("/app/emails/"+bounced, 200, "The simulated answer:")
		if n := strings.Count(page, "550 5.1.1"); n < 1 {
			t.Errorf("the answer stands on the page %d times", n)
		}
	})
}
