package cli

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// In development, only visitors from this machine are signed in automatically.
func TestDeveloperIsSignedIn(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.must("keys", "create", "--team", "Acme")
		n := p.start()
		visit := func(method, from, host string, header http.Header) *http.Response {
			path := "/people"
			if method == http.MethodPost {
				path = "/people/leave"
			}
			r := httptest.NewRequestWithContext(t.Context(), method, "http://"+host+path, nil)
			r.RemoteAddr = from
			for name, values := range header {
				r.Header[name] = values
			}
			w := httptest.NewRecorder()
			n.Handler().ServeHTTP(w, r)
			return w.Result()
		}
		asked := func(what string, a *http.Response) {
			t.Helper()
			if a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/sign-in") ||
				len(a.Cookies()) != 0 {
				t.Errorf("%s is answered with %d to %s", what, a.StatusCode, a.Header.Get("Location"))
			}
		}
		asked("a visitor of a node that does not develop", visit("GET", "127.0.0.1:99", "localhost:3000", nil))

		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second start finds the user that the first start created
			if err := n.EnsureDeveloper(t.Context(), who.TeamID); err != nil {
				t.Fatal(err)
			}
		}
		a := visit("GET", "127.0.0.1:99", "localhost:3000", nil)
		if a.StatusCode != http.StatusOK || len(a.Cookies()) != 1 {
			t.Fatalf("the developer is answered with %d and %v", a.StatusCode, a.Cookies())
		}
		again := visit("GET", "[::1]:99", "localhost:3000", http.Header{"Cookie": {a.Cookies()[0].String()}})
		if again.StatusCode != http.StatusOK || len(again.Cookies()) != 0 {
			t.Errorf("the second page is answered with %d and %v", again.StatusCode, again.Cookies())
		}
		if found := n.count(`SELECT COUNT(*) FROM memberships`); found != 1 {
			t.Errorf("%d memberships", found)
		}
		asked("another machine", visit("GET", "192.0.2.1:99", "localhost:3000", nil))
		asked("a name that leads here", visit("GET", "127.0.0.1:99", "evil.example", nil))
		asked("the client of a proxy", visit("GET", "127.0.0.1:99", "localhost:3000",
			http.Header{"X-Forwarded-For": {"192.0.2.1"}}))
		asked("a form without a session", visit("POST", "127.0.0.1:99", "localhost:3000", nil))
	})
}

// In development, an invitation email goes to the outbox, and its link opens the page for accepting the invitation.
func TestInvitationInDevelopment(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.must("keys", "create", "--team", "Development")
		n := p.start()
		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if err := n.EnsureDeveloper(t.Context(), who.TeamID); err != nil {
			t.Fatal(err)
		}
		jar, err := cookiejar.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := &http.Client{Jar: jar}
		read := func(answer *http.Response, err error) string {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			text, err := io.ReadAll(answer.Body)
			if err != nil || answer.StatusCode != http.StatusOK {
				t.Fatalf("%d, error %v: %s", answer.StatusCode, err, text)
			}
			return string(text)
		}
		read(c.Get(n.url + "/people"))
		page := read(c.PostForm(n.url+"/people/invite", url.Values{"team": {who.TeamID}, "email": {"bob@acme.example"},
			"role": {"member"}}))
		if !strings.Contains(page, "bob@acme.example") {
			t.Errorf("the page does not show the invitation:\n%s", page)
		}
		var raw string
		eventually(t, "the invitation is in the outbox", func() bool {
			all, err := n.Delivery.Outbox(t.Context())
			if err == nil && len(all) == 1 {
				raw = read(http.Get(n.url + "/dev/outbox/" + all[0].ID))
			}
			return raw != ""
		})
		link := regexp.MustCompile(`http://[^\s]+/invitations/[\w-]+`).FindString(mailparse.Parse([]byte(raw)).Text())
		if !strings.HasPrefix(link, n.url) {
			t.Fatalf("the email has no link to %s:\n%s", n.url, raw)
		}
		if page := read(http.Get(link)); !strings.Contains(page, "Join Development") {
			t.Errorf("the link shows\n%s", page)
		}
	})
}
