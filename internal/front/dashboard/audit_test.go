package dashboard_test

import (
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
)

// The audit log says in a sentence who did what to which object. It links objects that still exist, and shows the ids
// of the others.
func TestAuditSentences(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		admin := b.visitor(teams.Admin)
		b.api("PATCH", "/domains/"+b.domainOf(b.acme.TeamID).ID, `{"open_tracking":false}`)
		admin.says("/app/settings/name", url.Values{"name": {"Acme & Co"}}, 200, "The team has a new name.")
		key := b.api("POST", "/api-keys", `{"name":"worker <b>"}`)["id"].(string)
		gone := b.api("POST", "/webhooks", `{"endpoint":"https://gone.example/hook","events":["email.sent"]}`)["id"].(string)
		b.api("DELETE", "/webhooks/"+gone, "")
		contact := b.api("POST", "/contacts", `{"email":"laura@example.org"}`)["id"].(string)
		b.must(b.Audit.Write(t.Context(), audit.Entry{TeamID: b.acme.TeamID, ActorKind: "user", ActorID: id.New(),
			ActorName: "former@example.org", Action: audit.MemberInvited, Target: id.New(), Detail: "new@example.org as admin"}))
		b.must(b.Audit.Write(t.Context(), audit.Entry{TeamID: b.acme.TeamID, ActorKind: "user", ActorID: id.New(),
			ActorName: "former@example.org", Action: "setting.updated", Target: "a\u202eb"}))
		if page := admin.shows("/app/settings/audit", 200, "a[U&#43;202E]b"); strings.Contains(page, "\u202e") {
			t.Errorf("the page has a character that changes the direction of text\n%s", page)
		}
		b.must(b.Audit.Write(t.Context(), audit.Entry{TeamID: b.acme.TeamID, Action: audit.GrantUpdated, Target: id.New(),
			Detail: "before: recipients_per_email none, emails_per_day none, approval false; " +
				"now: recipients_per_email 20, emails_per_day 100, approval true"}))
		b.must(b.Audit.Write(t.Context(), audit.Entry{TeamID: b.acme.TeamID, Action: audit.GrantRevoked, Target: id.New(),
			Detail: "user_left: 2 grants"}))
		domain := b.domainOf(b.acme.TeamID).ID
		for action, detail := range map[string]string{
			"domain.setup_changed":   `setup before: records, now: cname; dmarc before: default, now: "v=DMARC1; p=none"`,
			"domain.mta_sts_updated": "mode before: testing, now: enforce; max_age before: 86400, now: 604800",
			"domain.keys_rotated":    "emergency; signing: s1; next: s2"} {
			b.must(b.Audit.Write(t.Context(), audit.Entry{TeamID: b.acme.TeamID, Action: action, Target: domain, Detail: detail}))
		}

		page := sentences(admin.shows("/app/settings/audit", 200, `href="/app/keys/`+key, `href="/app/contacts/`+contact,
			`title="`+gone, `title="domain.updated `))
		for _, want := range []string{"Laura Meyer renamed the team", "API key production changed the domain acme.example",
			"API key production created the API key worker &lt;b&gt;",
			"API key production deleted the webhook Copy " + gone[:8] + "…" + gone[len(gone)-6:],
			"API key production created the contact laura@example.org", "former@example.org invited new@example.org as admin",
			"Before: no limits. Now: at most 20 recipients of one email, at most 100 emails a day, a person approves each email",
			"left the team or was disabled, 2 grants",
			`Set-up before: records, now: cname. DMARC record before: default, now: &#34;v=DMARC1; p=none&#34;`,
			"Mode before: testing, now: enforce. Lifetime in seconds before: 86400, now: 604800",
			"Emergency. Selectors that signed: s1. New ones: s2"} {
			if !strings.Contains(page, want) {
				t.Errorf("the page lacks %q:\n%s", want, page)
			}
		}
		page = sentences(admin.shows("/app/settings/audit?actor="+admin.user.ID, 200))
		if !strings.Contains(page, "renamed the team") || strings.Contains(page, "API key production changed") {
			t.Errorf("the filter by actor shows:\n%s", page)
		}
		page = sentences(admin.shows("/app/settings/audit?action=domain.updated", 200, "<b>changed the domain</b>"))
		if !strings.Contains(page, "changed the domain acme.example") || strings.Contains(page, "Meyer renamed") {
			t.Errorf("the filter by action shows:\n%s", page)
		}
		admin.shows("/app/settings/audit?action=no.such&actor=x", 200, "No entry matches", "such the no")
		b.visitorOf(b.other.TeamID, teams.Owner).shows("/app/settings/audit?action=domain.updated", 200, "No entry matches")
	})
}

// sentences returns the text of the rows of a page.
func sentences(page string) string {
	_, rows, _ := strings.Cut(page, "<tbody>")
	var text strings.Builder
	for part := range strings.SplitSeq(rows, "<") {
		_, after, _ := strings.Cut(part, ">")
		text.WriteString(after)
	}
	return text.String()
}
