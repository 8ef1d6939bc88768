package dashboard_test

import (
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// A member suppresses addresses, finds one by the whole address, sees which email caused one, and removes it.
func TestSuppressions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Member)
		v.shows("/app/suppressions", 200, "No address is suppressed", "curl "+b.url+"/suppressions")
		for text, says := range map[string]string{
			"": "Enter a whole address", "laura@acme.example <script>": "&lt;script&gt;”",
			strings.Repeat("a@example.org ", 101): "These are 101 addresses."} {
			if status, page := v.post("/app/suppressions/add", url.Values{"addresses": {text}}); status != 422 ||
				!strings.Contains(page, says) {
				t.Errorf("add %.40q: %d\n%s", text, status, page)
			}
		}
		if status, page := v.post("/app/suppressions/add",
			url.Values{"addresses": {"Laura@Example.org,\r\nmax@example.org"}}); status != 200 ||
			!strings.Contains(page, "2 addresses are suppressed.") {
			t.Errorf("add: %d\n%s", status, page)
		}
		email := b.send("bounced@resend.dev", "Bounces")
		b.eventually("the email bounces", func() bool {
			return b.api("GET", "/emails/"+email, "")["last_event"] == "bounced"
		})
		v.shows("/app/suppressions", 200, "laura@example.org", "Added by hand", "max@example.org")
		if page := v.shows("/app/suppressions?q=LAURA@example.org", 200,
			"laura@example.org"); strings.Contains(page, "max@example.org") {
			t.Error("the search for an address shows another one")
		}
		v.shows("/app/suppressions?q=laura", 422, "Enter a whole address")
		v.shows("/app/suppressions?q=nobody@example.org", 200, "This address is not suppressed")
		v.shows("/app/suppressions?origin=complaint", 200, "No address matches", "Clear filters")
		v.shows("/app/suppressions?origin=x", 422, "origin")

		page := v.shows("/app/suppressions?q=laura@example.org", 200)
		path := regexp.MustCompile(`/app/suppressions/[0-9a-f-]{36}`).FindString(page)
		v.shows(path, 200, "laura@example.org", "Remove suppression")
		if status, page := v.get("/app/suppressions/export?origin=manual"); status != 200 ||
			!strings.HasPrefix(page, "email,origin,source_id,created_at,id\r\n") || strings.Count(page, "\r\n") != 3 {
			t.Errorf("export: %d\n%s", status, page)
		}
		if page := v.shows("/app/suppressions?q=laura@example.org", 200); strings.Contains(page, "/suppressions/export") {
			t.Error("the result of a search leads to an export of the whole list")
		}
		v.shows("/app/suppressions/export?q=laura@example.org", 422, "cannot be exported")
		viewer := b.visitor(teams.Viewer)
		for _, at := range []string{"/app/suppressions", path} {
			if page := viewer.shows(at, 200); strings.Contains(page, "Remove suppression") ||
				strings.Contains(page, "/suppressions/add") {
				t.Errorf("%s has forms for a viewer", at)
			}
		}
		other := b.visitorOf(b.other.TeamID, teams.Owner)
		other.shows(path, 404)
		if status, _ := other.post(path+"/remove", nil); status != 404 {
			t.Errorf("remove another team's suppression: %d", status)
		}
		w, _ := v.exchange("POST", path+"/remove", url.Values{"team": {v.teamID}})
		removed := w.Header.Get("Location")
		v.shows(removed, 200, "laura@example.org is no longer suppressed.")
		v.shows(path, 404)
		const undo = `<input type="hidden" name="addresses" value="laura@example.org"><button class="plain">Undo</button>`
		v.shows(removed, 200, undo)
		for _, link := range []string{"/app/suppressions?removed=laura@example.org", removed[:len(removed)-1],
			strings.Replace(removed, "laura", "anna", 1), removed + "&removed=anna@example.org"} {
			if page := v.shows(link, 200); strings.Contains(page, "Undo") && link != removed+"&removed=anna@example.org" ||
				strings.Contains(page, `value="anna@`) {
				t.Errorf("%s offers to suppress an address", link)
			}
		}
		for _, someone := range []*visitor{b.visitor(teams.Member), viewer, other} {
			if page := someone.shows(removed, 200); strings.Contains(page, "Undo") {
				t.Error("the link of one person offers another to suppress an address")
			}
		}
		if status, page := v.post("/app/suppressions/add", url.Values{"addresses": {"laura@example.org"}}); status != 200 ||
			!strings.Contains(page, "laura@example.org is suppressed.") {
			t.Errorf("undo: %d\n%s", status, page)
		}
		if page := v.shows(removed, 200); strings.Contains(page, "Undo") {
			t.Error("what was undone can be undone again")
		}
		if status, page := v.post("/app/suppressions/add", url.Values{"addresses": {"laura@example.org"}}); status != 200 {
			t.Errorf("undo, repeated: %d\n%s", status, page)
		}
		names := b.auditNames()
		for _, action := range []string{"suppressions.created", "suppression.deleted", "suppressions.exported"} {
			if !strings.Contains(names, `"`+action+`"`) {
				t.Errorf("the audit log lacks %s: %s", action, names)
			}
		}
	})
}
