package dashboard_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// A search that cannot be made shows the list with what was typed, and says beside it what is wrong.
func TestRefusedSearch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		b.delivered(b.send("laura@example.org", "One"))
		for path, says := range map[string]string{
			"/app/emails?q=%3F%3C%21":                      "The search has no letters or digits",
			"/app/emails?q=a&from=nobody+at+all":           "The sender must be",
			"/app/emails?status=lost":                      "The state has",
			"/app/emails?in=0000-01-01":                    "",
			"/app/emails?in=9999-12-31":                    "",
			"/app/receiving?q=%3F%3C%21":                   "The search has no letters or digits",
			"/app/receiving?q=%3C%21&to=%3C%3E":            "The recipient must be",
			"/app/receiving?q=" + strings.Repeat("a", 600): "The search is longer than 500 bytes",
		} {
			status, page := v.get(path)
			if says == "" && status != 200 || says != "" && status != 422 || !strings.Contains(page, says) ||
				!strings.Contains(page, `type="search"`) {
				t.Errorf("%s: %d\n%s", path, status, page)
			}
		}
	})
}
