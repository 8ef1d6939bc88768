package dashboard_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
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
			`<desc id="outcomes-finding">2 emails were sent, `+`1 was delivered and 1 bounced.`,
			"Show as table", day, "limit 5 %")
		if strings.Contains(page, "style=") || strings.Count(page, "<h1") != 1 {
			t.Errorf("the page has a style attribute, or not one heading")
		}
		v.shows(day, 200, sent[0], sent[1], today.Format("2 Jan 2006")+", UTC")
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

// Days of the metrics begin at midnight in the zone that the browser's cookie or the address names. The page, its
// tables and the list of a day's emails say which zone.
func TestMetricsInZones(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Viewer)
		sent := b.send("delivered@resend.dev", "One")
		b.eventually("it is counted", func() bool {
			_, page := v.get("/app/metrics")
			return strings.Contains(page, "1 delivered")
		})
		at, err := url.Parse(b.url)
		b.must(err)
		for _, name := range []string{"Pacific/Kiritimati", "Pacific/Pago_Pago"} { // their dates always differ
			zone, err := time.LoadLocation(name)
			b.must(err)
			v.c.Jar.SetCookies(at, []*http.Cookie{{Name: "postrider-zone", Value: name, Path: "/"}})
			today := time.Now().In(zone)
			day := "/app/emails?in=" + today.Format(time.DateOnly) + "%40" + url.QueryEscape(name)
			v.shows("/app/metrics?span=7d", 200, "times in "+name, `data-zone="`+name+`"`, "Period ("+name+")", day)
			v.shows(day, 200, sent, today.Format("2 Jan 2006")+", "+name)
			v.shows("/app/metrics/export?span=7d", 200, "\n"+today.Format("2006-01-02T00:00:00-07:00")+",1,1,")
			v.shows("/app/metrics?span=24h", 200, "1 delivered", time.Now().UTC().Format("2006-01-02T15"))
			page := v.shows("/app/metrics?span=7d&zone=UTC", 200, "times in UTC",
				"/app/emails?in="+time.Now().UTC().Format(time.DateOnly)+`"`)
			if strings.Contains(page, "data-zone") {
				t.Error("a page whose address names the zone would be loaded again in that of the browser")
			}
			v.shows("/app/emails", 200, " "+name+`">`) // the exact time of an email
			v.shows("/app/metrics?zone=Europe/Nowhere", 200, "times in "+name, "This time zone is not known",
				`aria-invalid="true"`)
		}
		for _, name := range []string{"Local", "../../etc/passwd", "Europe/Nowhere", strings.Repeat("x", 65)} {
			v.c.Jar.SetCookies(at, []*http.Cookie{{Name: "postrider-zone", Value: name, Path: "/"}})
			v.shows("/app/metrics", 200, "times in UTC")
		}
	})
}

// On the day after a broadcast, more emails are opened than are delivered. No figure exceeds 100 %: the page shows
// numbers by day, and a rate only where the emails of the whole span include the opened ones.
func TestOpensOfEarlierEmails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		day := time.Now().UTC().Truncate(24 * time.Hour)
		count := func(at time.Time, typ events.Type, n int64) {
			b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `INSERT INTO email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events,
					recipients, people) VALUES ($1, $2, $3, $3, $4, '', $5, $5, $5)`, db.ID(b.other.TeamID), at.Unix()/900,
					db.NoID, events.Types.Number(typ), n)
				return nil
			}))
		}
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)`,
				db.ID(b.other.TeamID), day.UnixMicro())
			return nil
		}))
		before, yesterday := day.AddDate(0, 0, -2), day.AddDate(0, 0, -1)
		count(before, events.EmailSent, 2000)
		count(before, events.EmailDelivered, 2000)
		count(yesterday, events.EmailSent, 300)
		count(yesterday, events.EmailDelivered, 300)
		count(yesterday, events.EmailOpened, 690)
		count(yesterday, events.EmailClicked, 69)
		v := b.visitorOf(b.other.TeamID, teams.Viewer)
		page := v.shows("/app/metrics?span=7d&zone=UTC", 200, "690 opened, 69 clicked", "Opened 30.0 %, clicked 3.0 %",
			"the emails may have been sent earlier")
		if strings.Contains(page, "230 %") || strings.Contains(page, "230.0 %") {
			t.Error("the page has a rate of 230 %")
		}
	})
}

// The page of metrics also shows the totals of a team with so many domains that their emails cannot be read by day and
// domain at once, and says which table it leaves out.
func TestMetricsOfManyDomains(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		slot := time.Now().Add(-2*time.Hour).Unix() / 900
		broadcast, ids := id.New(), make([]string, 20_001)
		count := func(ids []string, broadcast string) {
			domains := make([]db.ID, len(ids))
			for i, x := range ids {
				domains[i] = db.ID(x)
			}
			b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.InsertRows(t.Context(), `email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events,
					recipients)`, "", db.ID(b.other.TeamID), slot, domains, db.OrNoID(broadcast), int64(3), "", int64(1), int64(1))
				return err
			}))
		}
		for i := range ids {
			ids[i] = id.New()
		}
		b.must(b.DB.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)`,
				db.ID(b.other.TeamID), (slot+1)*900_000_000)
			return nil
		}))
		count(ids[:15_000], "")
		count(ids[:1], broadcast)
		v := b.visitorOf(b.other.TeamID, teams.Viewer)
		v.shows("/app/metrics", 200, "15,001 emails were sent")
		slot--
		count(ids[:15_000], "")
		page := v.shows("/app/metrics?span=24h", 200, "30,001 emails were sent", "Test or deleted domain",
			"Deleted broadcast")
		if strings.Contains(page, "Too many") {
			t.Error("the domains are said to be too many")
		}
		count(ids[15_000:], "")
		page = v.shows("/app/metrics", 200, "35,002 emails were sent", "Deleted broadcast",
			"Too many domains sent emails in this span")
		if strings.Contains(page, "Test or deleted domain") {
			t.Error("the table of domains is shown")
		}
		v.shows("/app/metrics?broadcast="+broadcast, 200, "1 email was sent, 0 were delivered")
		v.shows("/app/metrics?domain="+ids[0], 200, "3 emails were sent")
	})
}
