package signin

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// Earlier addresses of pages redirect to the present ones, with the rest of the path and the query. Forms of pages that
// were shown by an earlier release still work.
func TestMovedPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example")
		for from, to := range map[string]string{"/account": "/app/account",
			"/account?done=linked": "/app/account?done=linked", "/account/totp": "/app/account/totp", "/people": "/app/people",
			"/programs?after=x": "/app/apps?after=x", "/approve": "/app/approvals",
			"/approve/x%2Fy/files/1?from=2": "/app/approvals/x%2Fy/files/1?from=2"} {
			if b.get(from); b.path != to {
				t.Errorf("%s leads to %s, want %s", from, b.path, to)
			}
		}
		b.post("/account/name", url.Values{"name": {"Ada Lovelace"}}).want(200, "Your name is saved", "Ada Lovelace")
		b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if to := b.get("/account/%2F%2Fevil.example").header.Get("Location"); to != "/app/account/%2F%2Fevil.example" {
			t.Errorf("an address with slashes leads to %s", to)
		}
		r := b.posting("/account/name", url.Values{"name": {"Eve"}})
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		if b.do(r); b.status != http.StatusForbidden {
			t.Errorf("a form of another site is answered with %d", b.status)
		}
	})
}

// If the installation sends no emails with links, the page shows the link of an invitation once.
func TestInvitationLink(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.members.Mail = nil
		x.person("ada@acme.example", teams.Admin)
		b := x.browser(t).signIn("ada@acme.example")
		b.get("/app/people").want(200, "Create an invitation link").
			submit("/app/people/invite", "email", "bob@acme.example", "role", "viewer").
			want(200, "Pass this link on to bob@acme.example")
		first := b.copied()
		guest := x.browser(t)
		guest.get(first).want(200, "Join Acme", "bob@acme.example")
		b.get("/app/people").want(200, "bob@acme.example")
		if b.copied() != "" {
			t.Error("the link is shown again")
		}
		for n := range elements(t, b.body) {
			if action := attr(n, "action"); n.Data == "form" && strings.HasSuffix(action, "/resend") {
				b.submit(action).want(200, "Pass this link on to bob@acme.example")
				break
			}
		}
		second := b.copied()
		guest.get(first).want(404)
		guest.get(second).want(200, "Join Acme")
		b.submit("/app/people/invite", "email", "eve@acme.example", "role", "owner").want(403)
		b.submit("/app/people/invite", "email", "wrong", "role", "viewer").want(422, "email@example.com")
	})
}

// copied returns the path of the link that the page offers to copy, or "".
func (b *browser) copied() string {
	for n := range elements(b.t, b.body) {
		if u, err := url.Parse(attr(n, "data-copy")); err == nil && u.Host != "" {
			return u.Path
		}
	}
	return ""
}
