package signin

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// allow creates an OAuth grant for the team Acme with a user's consent, and returns the grant's access token.
func (x *fixture) allow(by teams.Actor, name, scopes string) string {
	x.T.Helper()
	const redirect, verifier = "http://127.0.0.1:4711/callback", "a-verifier-of-43-characters-at-least-0123456789"
	c, err := x.Grants.Register(x.T.Context(), grants.NewClient{Name: name, RedirectURIs: []string{redirect},
		Address: fmt.Sprintf("192.0.2.%d", x.Count(`SELECT COUNT(*) FROM oauth_clients`))})
	x.Must(err)
	hash := sha256.Sum256([]byte(verifier))
	q, err := x.Grants.CheckRequest(x.T.Context(), grants.Params{ClientID: c.ID, ResponseType: "code",
		RedirectURI: redirect,
		Scope:       scopes, Challenge: base64.RawURLEncoding.EncodeToString(hash[:]), ChallengeMethod: "S256"})
	x.Must(err)
	code, _, err := x.Grants.Approve(x.T.Context(), q, by)
	x.Must(err)
	t, err := x.Grants.Exchange(x.T.Context(), grants.ExchangeParams{ClientID: c.ID, Code: code, RedirectURI: redirect,
		Verifier: verifier})
	x.Must(err)
	return t.Access
}

// action returns the action of the form on the page whose action ends with the given suffix, or "" if there is no such
// form.
func (b *browser) action(ends string) (found string) {
	for n := range elements(b.t, b.body) {
		path, _, _ := strings.Cut(attr(n, "action"), "?")
		if n.Data == "form" && strings.HasSuffix(path, ends) {
			found = attr(n, "action")
		}
	}
	return found
}

// Members see their team's connected apps with scopes and limits, and can change the limits and revoke grants.
func TestConnectedApps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		actor := func(email string, role teams.Role) teams.Actor {
			a, err := x.members.Actor(t.Context(), x.person(email, role).ID, x.Acme.TeamID)
			x.Must(err)
			return a
		}
		ann, vic := actor("ann@acme.example", teams.Member), actor("vic@acme.example", teams.Viewer)
		x.person("eve@other.example", "")
		b := x.browser(t).signIn("ann@acme.example")
		b.get("/app/apps").want(200, "There are no connected apps")

		notes := x.allow(ann, "Notes <b>", "emails:send automations:write emails:read")
		b.get("/app/apps").want(200, "Notes <b>", "Allowed by ann@acme.example", "Not used yet", "No limits.",
			"Send emails and broadcasts in the name of the team", "Make and change automations")
		if strings.Contains(b.body, "<b>") {
			t.Error("the name of a program is HTML in the page")
		}

		// A limit on a grant is stored and recorded in the audit log. The limit removes any scopes that would bypass it.
		b.submit(b.action("/limits"), "emails_per_day", "7", "approval", "").
			want(200, "The limits are saved", "At most 7 emails a day", "and no broadcasts")
		if strings.Contains(b.body, "Make and change automations") {
			t.Error("a program with a limit may change automations")
		}
		b.get("/app/apps").want(200, "Not used yet")
		by, err := x.Teams.Authenticate(t.Context(), notes)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		x.Must(x.Grants.Run(ended)) // writes when the apps were last used
		if b.get("/app/apps").want(200, "Last used"); strings.Contains(b.body, "Not used") {
			t.Errorf("the page of a used app says\n%s", b.body)
		}
		if err != nil || !by.Limited || by.Scopes != teams.NewScopes(teams.EmailsSend, teams.EmailsRead) {
			t.Errorf("limited %v, %v, %v", by.Limited, by.Scopes, err)
		}
		b.submit(b.action("/limits"), "emails_per_day", "0").want(422, "must be a number of at least 1",
			"At most 7 emails a day")
		b.submit(b.action("/limits"), "recipients_per_email", "151").want(422, "must be 1 to 150")
		b.submit(b.action("/limits"), "emails_per_day", "", "approval", "").want(200, "No limits.")

		// A member with the role viewer can see the list of connected apps, but can revoke only grants that the same member
		// allowed.
		revoke := b.action("/revoke")
		team := url.Values{"team": {x.Acme.TeamID}}
		v := x.browser(t).signIn("vic@acme.example").get("/app/apps").want(200, "Notes <b>")
		if v.action("/limits") != "" || v.action("/revoke") != "" {
			t.Error("a viewer may limit or revoke")
		}
		v.post(revoke, team).want(403, "Your role in this team does not allow this")
		v.post(strings.Replace(revoke, "/revoke", "/limits", 1), team).want(403)
		reader := x.allow(vic, "Reader", "emails:read")
		v.get("/app/apps").want(200, "Reader")
		if v.action("/limits") != "" {
			t.Error("a viewer may limit")
		}
		v.submit(v.action("/revoke")).want(200, "can no longer act for the team", "it was revoked on this page")
		if _, err := x.Teams.Authenticate(t.Context(), reader); err == nil {
			t.Error("a token works that was revoked")
		}

		// A user of another team sees none of the team's connected apps.
		e := x.browser(t).signIn("eve@other.example")
		e.post(revoke, team).want(403)
		e.get("/app/apps").want(200, "You are not a member of a team")

		b.get("/app/apps").submit(revoke).want(200, "can no longer act for the team")
		if b.action("/revoke") != "" || b.action("/limits") != "" {
			t.Error("what is revoked can be revoked or limited")
		}
		if _, err := x.Teams.Authenticate(t.Context(), notes); err == nil {
			t.Error("a token works that was revoked")
		}
		b.post(revoke, team).want(404, "or no longer")
		b.post(strings.Replace(revoke, "/revoke", "/limits", 1), team).want(404, "or no longer")
		for what, want := range map[string]int{
			`action = 'grant.revoked' AND actor_kind = 'user' AND actor_name = 'ann@acme.example'
				AND address = '192.0.2.1' AND detail = 'revoked_from_dashboard'`: 1,
			`action = 'grant.revoked' AND actor_name = 'vic@acme.example'`:                  1,
			`action = 'grant.updated' AND actor_name = 'ann@acme.example' AND target <> ''`: 2,
		} {
			n := x.Count(`SELECT COUNT(*) FROM audit_log WHERE team_id = $1 AND `+what, db.ID(x.Acme.TeamID))
			if n != want {
				t.Errorf("%s: recorded %d times", what, n)
			}
		}
	})
}

// After a change on one page of a long list of connected apps, the browser returns to the same page. The list shows the
// names of users who have left the team.
func TestPagesOfConnectedApps(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.person("leo@acme.example", teams.Member)
		leo, err := x.members.Actor(t.Context(), u.ID, x.Acme.TeamID)
		x.Must(err)
		x.allow(leo, "First", "emails:read")
		x.Must(x.Members.Leave(t.Context(), x.Acme.TeamID, u.ID))
		for range appsPerPage {
			x.allow(x.Acme, "Another", "emails:read")
		}
		x.person("ann@acme.example", teams.Owner)
		b := x.browser(t).signIn("ann@acme.example").get("/app/apps").want(200, "Another", "an API key")
		follow := func(label string) {
			t.Helper()
			for n := range elements(t, b.body) {
				if n.Data == "a" && text(n) == label {
					b.get(attr(n, "href"))
					return
				}
			}
			t.Fatalf("%s has no link %s", b.path, label)
		}
		if strings.Contains(b.body, "First") || strings.Contains(b.body, `rel="prev"`) {
			t.Error("the first page has more than it should")
		}
		follow("Older")
		b.want(200, "First", "leo@acme.example, who has left the team", "has left the team or was disabled")
		if strings.Contains(b.body, "Another") || strings.Contains(b.body, `rel="next"`) {
			t.Errorf("the second page: %s", b.body)
		}
		follow("Newer")
		if b.want(200, "Another", "Older"); strings.Contains(b.body, "First") || strings.Contains(b.body, `rel="prev"`) {
			t.Errorf("back on the first page: %s", b.body)
		}
		b.submit(b.action("/revoke")).want(200, "can no longer act", "it was revoked on this page", "Older")
		if !strings.Contains(b.path, "before=") {
			t.Errorf("from a page with a cursor one is led to %s", b.path)
		}
		b.get("/app/apps?after=x&before=y").want(200, "Another")
	})
}

// A member can make the limits of an owner's app stricter, but cannot loosen them, because the app would regain rights
// that the member lacks. The audit log shows the limits before and after each change.
func TestMemberLoosensLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		actor := func(email string, role teams.Role) teams.Actor {
			a, err := x.members.Actor(t.Context(), x.person(email, role).ID, x.Acme.TeamID)
			x.Must(err)
			return a
		}
		owner, member := actor("oda@acme.example", teams.Owner), actor("max@acme.example", teams.Member)
		const refused = "The app would get back rights that you do not have (members:write)."
		const hint = "You can make these limits stricter."
		token := x.allow(owner, "Agent", "full_access")
		may := func(want teams.Scope, has bool) {
			t.Helper()
			by, err := x.Teams.Authenticate(t.Context(), token)
			if err != nil || by.Scopes.Has(want) != has {
				t.Errorf("the app has %s: %v, error %v", want, by.Scopes.Has(want), err)
			}
		}
		o, m := x.browser(t).signIn("oda@acme.example"), x.browser(t).signIn("max@acme.example")
		limit := func(b *browser, recipients, emails, approval string) *browser {
			t.Helper()
			b.get("/app/apps")
			return b.submit(b.action("/limits"), "recipients_per_email", recipients, "emails_per_day", emails, "approval",
				approval)
		}
		m.get("/app/apps").want(200, hint)
		limit(m, "50", "200", "").want(200, "At most 50 recipients")
		may(teams.MembersWrite, false)
		limit(m, "10", "200", "yes").want(200, "At most 10 recipients", "A person approves", hint)
		may(teams.EmailsSend, false)

		// A member may change numbers and approval if the app stays limited, because the member may send emails too.
		limit(m, "", "", "").want(403, refused, "You can make its limits stricter", "At most 10 recipients")
		may(teams.MembersWrite, false)
		limit(m, "10", "200", "").want(200, "At most 10 recipients")
		limit(m, "20", "100", "yes").want(200, "At most 20 recipients", "At most 100 emails", "A person approves")
		limit(m, "", "", "").want(403, refused)
		if o.get("/app/apps"); strings.Contains(o.body, hint) {
			t.Error("the page tells an owner to make limits only stricter")
		}
		limit(o, "", "", "").want(200, "No limits.")
		may(teams.MembersWrite, true)

		// A member may remove the limits of an app that has no more rights than the member.
		o.submit(o.action("/revoke")).want(200, "can no longer act for the team")
		x.allow(member, "Notes", "full_access")
		limit(m, "5", "", "").want(200, "At most 5 recipients")
		if strings.Contains(m.body, hint) {
			t.Error("the page tells a member to make limits only stricter")
		}
		limit(m, "", "", "").want(200, "No limits.")
		for detail, n := range map[string]int{
			"before: recipients_per_email none, emails_per_day none, approval false; " +
				"now: recipients_per_email 50, emails_per_day 200, approval false": 1,
			"before: recipients_per_email 50, emails_per_day 200, approval false; " +
				"now: recipients_per_email 10, emails_per_day 200, approval true": 1,
			"before: recipients_per_email 20, emails_per_day 100, approval true; " +
				"now: recipients_per_email none, emails_per_day none, approval false": 1,
		} {
			if got := x.Count(`SELECT COUNT(*) FROM audit_log WHERE team_id = $1 AND action = 'grant.updated'
				AND detail = $2`, db.ID(x.Acme.TeamID), detail); got != n {
				t.Errorf("%s: recorded %d times, want %d", detail, got, n)
			}
		}
	})
}
