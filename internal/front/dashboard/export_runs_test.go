package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The page of exports shows each file that the visitor downloads, with its number of rows and its state, and nothing of
// other members. It works by reloading, too.
func TestExportRuns(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v, other := b.visitor(teams.Member), b.visitor(teams.Owner)
		v.shows("/app/exports", 200, "No export since yesterday", `href="/app/emails/export"`,
			`href="/app/emails/export?format=ndjson"`)
		for _, subject := range []string{"One", "Two"} {
			b.delivered(b.send("laura@example.org", subject))
		}
		if _, text := v.get("/app/emails/export?in=24h&q="); strings.Count(text, "laura@example.org") != 2 {
			t.Errorf("the file:\n%s", text)
		}
		v.shows("/app/exports", 200, "2 emails in all", "1 filter<", "Complete", `aria-valuenow="100"`, "data-live-poll")
		if page := other.shows("/app/exports", 200, "No export since yesterday"); strings.Contains(page, "1 filter") {
			t.Error("another member sees the export")
		}
		x, err := b.ExportRuns.Begin(t.Context(), teams.ActorRef{Kind: teams.UserActor, ID: other.user.ID}, b.acme.TeamID,
			"logs", 0, time.Now().Add(-time.Hour))
		b.must(err)
		other.shows("/app/exports", 200, "Requests", "Running", "0 requests so far", `aria-valuenow="0"`)
		b.must(x.Advance(t.Context(), 1500, time.Now().Add(-40*time.Minute)))
		b.must(x.End(t.Context(), false))
		other.shows("/app/exports", 200, "Stopped", "1,500 requests until the download stopped", "Export the list again",
			`aria-valuenow="66"`)
		v.shows("/app/settings", 200, `href="/app/exports"`)
		v.shows("/app/suppressions/export?origin=nonsense", 422)
		if page := v.shows("/app/exports", 200); strings.Contains(page, "suppressions in all") {
			t.Error("a refused export is listed")
		}
	})
}
