package dashboard_test

import (
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/platform/db"
)

const visitorsPassword = "correct horse battery"

// signIn signs a user in by the form of the sign-in page and returns the page to which that leads.
func (v *visitor) signIn(next string) (status int, page string) {
	return v.do("POST", "/sign-in", url.Values{"email": {v.user.Email}, "password": {visitorsPassword}, "next": {next}})
}

// withPassword returns a visitor with a password, who is not signed in.
func (b *board) withPassword(email string, role teams.Role, teamIDs ...string) *visitor {
	b.t.Helper()
	u, err := b.Users.Create(b.t.Context(), users.NewUser{Email: email, Name: "Laura", Password: visitorsPassword})
	b.must(err)
	for _, teamID := range teamIDs {
		b.must(b.DB.Update(b.t.Context(), func(tx *db.Tx) error {
			return b.Members.AddIn(b.t.Context(), tx, teamID, u.ID, role)
		}))
	}
	jar, err := cookiejar.New(nil)
	b.must(err)
	return &visitor{board: b, c: &http.Client{Jar: jar}, user: u, teamID: teamIDs[0]}
}

// endSessions signs a user out everywhere, as another browser of the user does.
func (v *visitor) endSessions() {
	v.t.Helper()
	all, err := v.Users.Sessions(v.t.Context(), v.user.ID)
	v.must(err)
	for _, x := range all {
		v.must(v.Users.EndSession(v.t.Context(), v.user.ID, x.ID))
	}
}

// nextOf returns where the sign-in page leads to after the visitor has signed in.
func (v *visitor) nextOf(page string) string {
	v.t.Helper()
	_, rest, ok := strings.Cut(page, `name="next" value="`)
	if !ok {
		v.t.Fatalf("this is not the sign-in page:\n%s", page)
	}
	next, _, _ := strings.Cut(rest, `"`)
	return next
}

// A form that is submitted after the session has ended changes nothing. After the visitor has signed in, it comes back
// as it was typed, once.
func TestFormAfterTheSession(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.withPassword("kept@example.org", teams.Owner, b.acme.TeamID)
		const typed = `value="news.&#34;acme.example"`
		submit := func() string {
			t.Helper()
			status, page := v.signIn("/app/domains/new")
			if status != 200 || !strings.Contains(page, "Add a domain") || strings.Contains(page, "You were signed out") {
				t.Fatalf("the sign-in leads to %d\n%s", status, page)
			}
			v.endSessions()
			_, page = v.post("/app/domains/new", url.Values{"name": {`news."acme.example`}, "receiving": {"on"}})
			if next := v.nextOf(page); next != "/app/domains/new" {
				t.Errorf("the sign-in leads to %q", next)
			}
			return page
		}
		submit()
		status, page := v.signIn("/app/domains/new")
		if status != 200 || !strings.Contains(page, typed) ||
			!strings.Contains(page, "You were signed out, so nothing was changed.") {
			t.Errorf("the form does not come back: %d\n%s", status, page)
		}
		if _, page := v.get("/app/domains/new"); strings.Contains(page, typed) {
			t.Errorf("the form comes back twice\n%s", page)
		}

		// A form without a page of its own leads to the page that has it. Secrets do not come back.
		v.endSessions()
		_, page = v.post("/app/settings/name", url.Values{"name": {"Better name"}, "password": {"a secret"}})
		next := v.nextOf(page)
		if next != "/app/settings" {
			t.Errorf("the sign-in leads to %q", next)
		}
		if _, page := v.signIn(next); !strings.Contains(page, `value="Better name"`) || strings.Contains(page, "a secret") {
			t.Errorf("the form does not come back:\n%s", page)
		}

		// Another person who signs in to the same browser does not see what was typed in another team.
		submit()
		other := b.withPassword("other@example.org", teams.Owner, b.other.TeamID)
		other.c = v.c
		if _, page := other.signIn("/app/domains/new"); strings.Contains(page, typed) {
			t.Errorf("a member of another team sees the form\n%s", page)
		}
		submit()
		colleague := b.withPassword("colleague@example.org", teams.Owner, b.acme.TeamID)
		colleague.c = v.c
		if _, page := colleague.signIn("/app/domains/new"); strings.Contains(page, typed) {
			t.Errorf("another member of the team sees the form\n%s", page)
		}
	})
}

// A form is kept only for a browser in which a user was signed in. A made-up cookie keeps none, so that strangers
// cannot take the places of the forms that are kept.
func TestFormOfAStranger(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, b *board) {
		v := b.visitor(teams.Owner)
		v.get("/app/settings")
		at, err := url.Parse(b.url)
		b.must(err)
		cookies := v.c.Jar.Cookies(at)
		i := slices.IndexFunc(cookies, func(c *http.Cookie) bool { return c.Name == "postrider-last" })
		if i < 0 {
			t.Fatalf("no cookie names the user: %v", cookies)
		}
		jar, err := cookiejar.New(nil)
		b.must(err)
		stranger := &visitor{board: b, c: &http.Client{Jar: jar}, teamID: v.teamID}
		for value, want := range map[string]bool{cookies[i].Value: true, v.user.ID: false, "x": false,
			v.user.ID + "." + strings.Repeat("A", 22): false} {
			jar.SetCookies(at, []*http.Cookie{{Name: "postrider-last", Value: value, Path: "/"}})
			w, _ := stranger.exchange(http.MethodPost, "/app/settings/name", url.Values{"name": {"x"}})
			kept := slices.ContainsFunc(w.Cookies(), func(c *http.Cookie) bool { return c.Name == "postrider-kept" })
			if w.StatusCode != http.StatusSeeOther || kept != want {
				t.Errorf("with the cookie %q: %d, kept %v, want %v", value, w.StatusCode, kept, want)
			}
		}
	})
}
