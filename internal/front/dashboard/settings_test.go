package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// First steps are marked as done when their objects exist.
func TestFirstSteps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		v.shows("/app/start", 200, "2 of 4 done", "Domain acme.example is verified", "API key production exists",
			"Send the first email", "Add a webhook", "curl "+b.url+"/emails")
		id := b.send("delivered@resend.dev", "One")
		b.api("POST", "/webhooks", `{"endpoint":"https://example.org/hook","events":["email.sent"]}`)
		v.shows("/app/start", 200, "4 of 4 done", "/app/emails/"+id, "https://example.org/hook")
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		other.shows("/app/start", 200, "1 of 4 done", "Add a domain", `href="/app/domains/new"`, `href="/app/webhooks/new"`)
		b.visitorOf(b.other.TeamID, teams.Viewer).shows("/app/start", 200, `href="/app/domains">Add domain`)
	})
}

// The settings show limits, usage and retention. Owners and admins rename the team.
func TestSettings(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.must(b.Quotas.Set(t.Context(), b.Teams, b.acme.TeamID, func(q *teams.Quota) { q.Daily = 10 }))
		for range 8 {
			b.send("delivered@resend.dev", "One")
		}
		admin := b.visitor(teams.Admin)
		admin.shows("/app/settings", 200, "Acme", "8 of 10", `aria-valuenow="8"`, `class="warn"`,
			"up to 1,000 requests a second", "until deleted", "/app/settings/audit", `action="/app/settings/name"`)
		if status, page := admin.post("/app/settings/name", url.Values{"name": {"  "}}); status != 422 ||
			!strings.Contains(page, `aria-invalid="true"`) {
			t.Errorf("an empty name: %d %s", status, page)
		}
		long := strings.Repeat("x", 300)
		if status, page := admin.post("/app/settings/name", url.Values{"name": {long}}); status != 422 ||
			!strings.Contains(page, long) {
			t.Errorf("a long name: %d %s", status, page)
		}
		if status, page := admin.post("/app/settings/name", url.Values{"name": {"Acme & Co"}}); status != 200 ||
			!strings.Contains(page, "Acme &amp; Co") || !strings.Contains(page, "The team has a new name.") {
			t.Errorf("a new name: %d %s", status, page)
		}
		if status, _ := admin.post("/app/settings/name",
			url.Values{"name": {"Mine"}, "team": {b.other.TeamID}}); status != 403 {
			t.Errorf("another team is renamed with %d", status)
		}
		viewer := b.visitor(teams.Viewer)
		page := viewer.shows("/app/settings", 200, "Acme &amp; Co")
		if strings.Contains(page, `action="/app/settings/name"`) {
			t.Error("a viewer sees the form for the name")
		}
	})
}
