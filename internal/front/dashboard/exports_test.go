package dashboard_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// An export refuses a parameter that it does not know, and names it. Without this, a misspelt filter would export
// everything. The links of the pages leave out what only the page knows.
func TestExportParameters(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Owner)
		b.send("laura@example.org", "One")
		for path, name := range map[string]string{
			"emails/export?statuss=bounced":                   "statuss",
			"emails/export?Status=bounced":                    "Status",
			"emails/export?to=laura@example.org":              "to",
			"emails/export?q=laura&q=ann":                     "q",
			"emails/export?after=x":                           "after",
			"suppressions/export?orgin=bounce":                "orgin",
			"suppressions/export?origin=a&origin=b":           "origin",
			"logs/export?state=500":                           "state",
			"logs/export?status=500&status=200":               "status",
			"metrics/export?domian=x":                         "domian",
			"metrics/export?span=century":                     "span",
			"metrics/export?by=minute":                        "by",
			"metrics/export?zone=Nowhere/Never":               "zone",
			"metrics/export?format=ndjson":                    "format",
			"emails/export?%3Cscript%3E=" + "x":               "&lt;script&gt;",
			"emails/export?" + strings.Repeat("n", 300) + "=": strings.Repeat("n", 100),
		} {
			w, page := v.exchange(http.MethodGet, "/app/"+path, nil)
			if w.StatusCode != 422 || !strings.Contains(page, name) && name != "zone" || strings.Contains(page, "<script>") {
				t.Errorf("%s: %d\n%s", path, w.StatusCode, page)
			}
			if w.Header.Get("Content-Disposition") != "" {
				t.Errorf("%s is a download", path)
			}
		}
		for path, link := range map[string]string{
			"emails?status=sent&status=bounced&q=laura&before=&utm=x": "/app/emails/export?" +
				"q=laura&amp;status=sent&amp;status=bounced",
			"suppressions?origin=bounce&removed=x":               "/app/suppressions/export?origin=bounce",
			"logs?status=500&utm=x":                              "/app/logs/export?status=500",
			"metrics?span=7d&by=minute&zone=Nowhere/Never&utm=x": "/app/metrics/export?by=day&amp;span=7d",
		} {
			v.shows("/app/"+path, 200, `href="`+link+`"`)
			w, file := v.exchange(http.MethodGet, strings.ReplaceAll(link, "&amp;", "&"), nil)
			if w.StatusCode != 200 || !strings.HasPrefix(w.Header.Get("Content-Type"), "text/csv") {
				t.Errorf("%s: %d\n%s", link, w.StatusCode, file)
			}
		}
	})
}
