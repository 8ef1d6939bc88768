package dashboard_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// The navigation counts approvals that wait and webhooks that fail, of the visitor's team only.
func TestCountsOfTheNavigation(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		const waits, fails = `<span class="count due">2<span class="unseen"> waiting</span>`,
			`<span class="count due">1<span class="unseen"> failing</span>`
		for range 2 {
			b.api("POST", "/approvals", `{"from":"Acme <billing@acme.example>","to":"laura@example.org","subject":"Hello",
				"text":"Hello"}`)
		}
		hook := b.api("POST", "/webhooks", `{"endpoint":"https://app.example/hook","events":["email.sent"]}`)["id"].(string)
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE webhooks SET failing_since = 1 WHERE id = $1`, db.ID(hook))
			return err
		}))
		v := b.visitor(teams.Viewer)
		v.shows("/app/emails", 200, waits, fails)
		if page := b.visitorOf(b.other.TeamID, teams.Owner).shows("/app/emails", 200); strings.Contains(page, "count due") {
			t.Errorf("another team has counts\n%s", page)
		}
	})
}
