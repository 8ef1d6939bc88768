package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

var linked = regexp.MustCompile(`(?:href|name="next" value)="(/app/(?:emails|webhooks)/[^"]+)"`)

// The page that a form of an email or a webhook shows leads to the same pages as the one that it was sent from.
func TestLinksAfterForm(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Owner)
		id := b.send("laura@example.org", "Shared")
		b.delivered(id)
		hook := b.api("POST", "/webhooks", `{"endpoint":"https://hooks.example/in","events":["email.sent"]}`)["id"].(string)
		for _, x := range []struct {
			path   string
			form   url.Values
			status int
		}{
			{"/app/emails/" + id + "/share", nil, 200},
			{"/app/emails/" + id + "/reschedule", url.Values{"scheduled_at": {"in 2 hours"}}, 422},
			{"/app/webhooks/" + hook + "/status", url.Values{"status": {"other"}}, 422},
		} {
			status, page := v.post(x.path, x.form)
			if status != x.status {
				t.Fatalf("%s: %d\n%s", x.path, status, page)
			}
			for _, link := range linked.FindAllStringSubmatch(page, -1) {
				to, _, _ := strings.Cut(strings.ReplaceAll(link[1], "&amp;", "&"), "#")
				if status, _ := v.get(to); status != 200 {
					t.Errorf("%s leads to %s, which has the status %d", x.path, to, status)
				}
			}
		}
	})
}
