package dashboard_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The page of metrics counts emails within a minute of their events, by domain and outcome, and lists a day's emails.
func TestMetrics(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		v.shows("/app/metrics", 200, "No emails in this span")
		sent := []string{b.send("delivered@resend.dev", "One"), b.send("bounced@resend.dev", "Two")}
		b.eventually("both are counted", func() bool {
			_, page := v.get("/app/metrics")
			return strings.Contains(page, "1 delivered, 1 bounced")
		})
		today := time.Now().UTC()
		day := "/app/emails?in=" + today.Format(time.DateOnly)
		page := v.shows("/app/metrics", 200, "50.0 %", "acme.example", `role="img"`,
			`<desc id="outcomes-finding">2 emails were sent, `+`1 were delivered and 1 bounced.`,
			"Show as table", day, "limit 5 %")
		if strings.Contains(page, "style=") || strings.Count(page, "<h1") != 1 {
			t.Errorf("the page has a style attribute, or not one heading")
		}
		v.shows(day, 200, sent[0], sent[1], today.Format("2 Jan 2006"))
		v.shows("/app/emails?in=2001-01-01", 200, "1 Jan 2001")
		for _, q := range []string{"?span=24h", "?span=7d&by=hour", "?span=90d&by=day", "?span=30d&by=week", "?span=x&by=y"} {
			v.shows("/app/metrics"+q, 200, "1 bounced")
		}
		domain := b.api("GET", "/domains", "")["data"].([]any)[0].(map[string]any)["id"].(string)
		v.shows("/app/metrics?domain="+domain, 200, "<b>acme.example</b>", "1 bounced", "domain="+domain)
		v.shows("/app/metrics?domain=01890a5d-ac96-774b-bcce-b302099a8057", 200, "No emails in this span", "unknown")
		v.shows("/app/metrics?domain=%27--", 200, "No emails in this span")
		v.shows("/app/metrics?broadcast=01890a5d-ac96-774b-bcce-b302099a8057", 200, "No emails in this span")
		v.shows("/app/metrics/export?span=24h", 200, "hour,sent,delivered", ",2,1,0,1,")
		b.visitorOf(b.other.TeamID, teams.Owner).shows("/app/metrics?domain="+domain, 200, "No emails in this span")
	})
}
