package dashboard_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
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
		v.shows("/app/emails", 200, "</svg>Captured</span>")
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

// The list shows an email as captured only if the outbox has taken it. Before the node captured emails, a mail server
// has taken them.
func TestDeliveredBeforeCapturing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		id := b.send("laura@example.org", "One")
		b.delivered(id)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE email_events SET host = 'mx.example.org [192.0.2.1]'
				WHERE email_id = $1 AND host IS NOT NULL`, db.ID(id))
			return err
		}))
		page := v.shows("/app/emails", 200, "laura@example.org", "Delivered")
		if strings.Contains(page, "</svg>Captured</span>") {
			t.Error("the list shows an email as captured that a mail server has taken")
		}
	})
}
