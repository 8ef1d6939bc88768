package dashboard_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The form that sends an email again says what it leaves out of the earlier one, and does not read large texts.
func TestSendAgain(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		large := b.sendJSON(map[string]any{"from": "a@acme.example", "to": "b@example.org", "subject": "Large one",
			"html": "<p>" + strings.Repeat("long ", 20_000) + "</p>"})
		page := v.shows("/app/emails/new?again="+large, 200, "Large one", "leaves out the text and the HTML")
		if len(page) > 60_000 {
			t.Errorf("the page has %d bytes", len(page))
		}
		full := b.sendJSON(map[string]any{"from": "a@acme.example", "to": "b@example.org", "cc": "c@example.org",
			"subject": "Full one", "text": "Typed text", "reply_to": "r@example.org",
			"attachments": []map[string]string{{"filename": "a.txt", "content": "YQ=="}}})
		v.shows("/app/emails/new?again="+full, 200, "Typed text",
			"leaves out the recipients of copies, the address for replies and the attachments")
		plain := b.sendJSON(map[string]any{"from": "a@acme.example", "to": "b@example.org", "subject": "x", "text": "y"})
		if page := v.shows("/app/emails/new?again="+plain, 200); strings.Contains(page, "leaves out") {
			t.Error("the form says that it leaves something out")
		}
	})
}
