package dashboard_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// The palette finds contacts by address and name, broadcasts by name, and pages and headings of the documentation. It
// leads to pages that exist.
func TestPalette(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		contact := b.api("POST", "/contacts", `{"email":"laura@brightwater.example","first_name":"Laura",
			"last_name":"<b>Meyer","unsubscribed":true}`)["id"].(string)
		segment := b.api("POST", "/segments", `{"name":"Customers"}`)["id"].(string)
		broadcast := b.api("POST", "/broadcasts", `{"name":"May newsletter","segment_id":"`+segment+
			`","from":"Acme <news@acme.example>","subject":"What is new","html":"<p>Hello</p>"}`)["id"].(string)
		v := b.visitor(teams.Viewer)
		find := func(text string, want ...string) string {
			t.Helper()
			return v.shows("/app/search?q="+text, 200, want...)
		}
		toContact := `href="/app/contacts/` + contact + `">laura@brightwater.example · Laura &lt;b&gt;Meyer</a>`
		for _, text := range []string{"laura%40bright", "Laura", "%3Cb%3Emey", contact} {
			find(text, toContact, "Unsubscribed")
		}
		find("NEWSL", `href="/app/broadcasts/`+broadcast+`">May newsletter</a>`, "Draft")
		find(broadcast, "May newsletter")
		find("retrieve+a+contact", `<h2>Documentation</h2></header><ul class="entries">`,
			`href="/docs/api/contacts#retrieveAContactByItsIdOrAddress">`, "GET /contacts/{contact}")
		find("get+/contacts", `/docs/api/contacts#retrieveAContactByItsIdOrAddress`)
		find("idempotency+keys", `href="/docs/idempotency">Idempotency keys</a>`)
		// The script of the palette searches the documentation itself.
		v.shows("/app/palette?q=retrieve+a+contact", 200, `[{"label":"Nothing found","items":[]}]`)
		if page := find("acme"); strings.Contains(page, "Send an email") {
			t.Errorf("a viewer may send an email\n%s", page)
		}
		if page := find("%3Econtact"); strings.Contains(page, "brightwater") || strings.Contains(page, "/docs/api/") {
			t.Errorf("after the sign >, more than actions are found\n%s", page)
		}
		v.shows("/docs/api/contacts", 200, `id="retrieveAContactByItsIdOrAddress"`)

		v.shows("/app/contacts/"+contact, 200, "laura@brightwater.example", "Unsubscribed", "&lt;b&gt;Meyer",
			"/docs/api/contacts#retrieveAContactByItsIdOrAddress", "/app/emails?q=laura%40brightwater.example")
		v.shows("/app/broadcasts/"+broadcast, 200, "May newsletter", "Draft", "What is new", "Customers",
			"/docs/api/broadcasts#retrieveABroadcast")
		stranger := b.visitorOf(b.other.TeamID, teams.Owner)
		stranger.shows("/app/contacts/"+contact, 404)
		stranger.shows("/app/broadcasts/"+broadcast, 404)
		if _, page := stranger.get("/app/search?q=laura"); strings.Contains(page, "brightwater") {
			t.Errorf("another team finds the contact\n%s", page)
		}
	})
}

// The palette of a suspended team finds only what its members may open: neither domains nor contacts, and no actions.
func TestPaletteOfASuspendedTeam(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		b.api("POST", "/contacts", `{"email":"laura@acme.example"}`)
		b.send("laura@acme.example", "Welcome to acme")
		v := b.visitor(teams.Owner)
		v.shows("/app/search?q=acme", 200, "/app/domains/")
		v.shows("/app/search?q=laura", 200, "/app/contacts/")
		b.eventually("the email is found", func() bool {
			_, page := v.get("/app/search?q=welcome")
			return strings.Contains(page, "Welcome to acme")
		})
		b.must(b.Teams.SetSuspended(t.Context(), b.acme.TeamID, true))
		b.eventually("the team is suspended", func() bool { status, _ := v.get("/app/domains"); return status == 403 })
		v.shows("/app/search?q=welcome", 200, "Welcome to acme")
		for _, query := range []string{"acme", "laura", "", "domain", "send", "add"} {
			page := v.shows("/app/search?q="+query, 200)
			_, found, _ := strings.Cut(page, "<main")
			for _, link := range hrefs.FindAllStringSubmatch(found, -1) {
				if status, _ := v.get(strings.ReplaceAll(link[1], "&amp;", "&")); status != 200 {
					t.Errorf("searching for %q leads to %s, which is %d", query, link[1], status)
				}
			}
		}
	})
}

var hrefs = regexp.MustCompile(`<a [^>]*href="(/[^"#]*)`)
