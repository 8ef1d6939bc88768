package cli

import (
	"io"
	"maps"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/mailparse"
)

// developerPath makes the node a node for development and returns the path of the sign-in link.
func (n *started) developerPath(key string) string {
	n.t.Helper()
	who, err := n.Teams.Authenticate(n.t.Context(), key)
	if err != nil {
		n.t.Fatal(err)
	}
	path, err := n.EnsureDeveloper(n.t.Context(), who.TeamID, func(string) {})
	if err != nil {
		n.t.Fatal(err)
	}
	return path
}

// visit makes a request that comes from the given address.
func (n *started) visit(method, path, from, host string, header http.Header) *http.Response {
	r := httptest.NewRequestWithContext(n.t.Context(), method, "http://"+host+path, nil)
	r.RemoteAddr = from
	maps.Copy(r.Header, header)
	w := httptest.NewRecorder()
	n.Handler().ServeHTTP(w, r)
	return w.Result()
}

// TestDeveloperSignsInByLink checks that a browser is signed in as the development user only by the link that `dev`
// prints, wherever the request comes from, and that each link works once.
func TestDeveloperSignsInByLink(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		visit := n.visit
		const here, localhost = "127.0.0.1:99", "localhost:3000"
		refused := func(what string, a *http.Response) {
			t.Helper()
			text, _ := io.ReadAll(a.Body)
			if a.StatusCode != http.StatusUnauthorized || len(a.Cookies()) != 0 ||
				!strings.Contains(string(text), "restart the command") {
				t.Errorf("%s is answered with %d, %v and\n%s", what, a.StatusCode, a.Cookies(), text)
			}
		}
		html := http.Header{"Accept": {"text/html,*/*"}}
		if a := visit("GET", "/", here, localhost, html); a.Header.Get("Location") != "/setup" {
			t.Errorf("/ of an installation without users is answered with %d to %s", a.StatusCode, a.Header.Get("Location"))
		}
		text, _ := io.ReadAll(visit("GET", "/setup", here, localhost, html).Body)
		if !strings.Contains(string(text), "Open the set-up link") {
			t.Errorf("the page does not say how to set up:\n%s", text)
		}
		if a := visit("GET", "/dev/sign-in?token=", here, localhost, nil); a.StatusCode != http.StatusNotFound {
			t.Errorf("a link of a node that does not develop is answered with %d", a.StatusCode)
		}

		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		var links []string
		for range 2 { // the second start finds the user that the first start created
			link, err := n.EnsureDeveloper(t.Context(), who.TeamID, func(path string) { links = append(links, path) })
			if err != nil {
				t.Fatal(err)
			}
			links = append(links, link)
		}
		n.asksForTheLink(html)
		refused("the link of an earlier start", visit("GET", links[0], here, localhost, nil))
		refused("a link without a token", visit("GET", "/dev/sign-in", here, localhost, nil))
		refused("an empty token", visit("GET", "/dev/sign-in?token=", here, localhost, nil))
		refused("a part of the token", visit("GET", links[1][:len(links[1])-1], here, localhost, nil))
		visit("HEAD", links[1], here, localhost, nil)
		if a := visit("POST", links[1], here, localhost, nil); a.StatusCode != http.StatusMethodNotAllowed {
			t.Errorf("POST is answered with %d", a.StatusCode)
		}
		if len(links) != 2 {
			t.Fatalf("the links are %v", links)
		}

		a := visit("GET", links[1], here, localhost, nil)
		if a.StatusCode != http.StatusSeeOther || a.Header.Get("Location") != "/app/emails" || len(a.Cookies()) != 1 {
			t.Fatalf("the link is answered with %d and %v", a.StatusCode, a.Cookies())
		}
		session := http.Header{"Cookie": {a.Cookies()[0].String()}, "Accept": {"text/html"}}
		if a := visit("GET", "/app/people", "[::1]:99", localhost, session); a.StatusCode != http.StatusOK {
			t.Errorf("the page is answered with %d", a.StatusCode)
		}
		if a := visit("GET", "/", here, localhost, session); a.Header.Get("Location") != "/app/emails" {
			t.Errorf("/ with a session is answered with %d to %s", a.StatusCode, a.Header.Get("Location"))
		}
		if a := visit("GET", links[1], here, localhost, session); a.Header.Get("Location") != "/app/emails" {
			t.Errorf("the used link is answered to the same browser with %d", a.StatusCode)
		}
		refused("a used link", visit("GET", links[1], here, localhost, nil))
		if len(links) != 3 || links[2] == links[1] {
			t.Fatalf("the links are %v", links)
		}
		// Behind a tunnel, only the token counts.
		a = visit("GET", links[2], "192.0.2.1:99", "tunnel.example", http.Header{"X-Forwarded-For": {"192.0.2.9"}})
		if a.StatusCode != http.StatusSeeOther || len(a.Cookies()) != 1 {
			t.Errorf("the next link is answered with %d and %v", a.StatusCode, a.Cookies())
		}
		if found := n.count(`SELECT COUNT(*) FROM memberships`); found != 1 {
			t.Errorf("%d memberships", found)
		}
	})
}

// asksForTheLink checks that pages without a session say to open the link.
func (n *started) asksForTheLink(html http.Header) {
	t := n.t
	t.Helper()
	for _, path := range []string{"/app/people", "/app/account"} {
		a := n.visit("GET", path, "127.0.0.1:99", "localhost:3000", nil)
		if a.StatusCode != http.StatusSeeOther || !strings.HasPrefix(a.Header.Get("Location"), "/sign-in") ||
			len(a.Cookies()) != 0 {
			t.Errorf("%s without a session is answered with %d to %s", path, a.StatusCode, a.Header.Get("Location"))
		}
	}
	if a := n.visit("GET", "/", "127.0.0.1:99", "localhost:3000", html); a.Header.Get("Location") != "/sign-in" {
		t.Errorf("/ is answered with %d to %s", a.StatusCode, a.Header.Get("Location"))
	}
	if a := n.visit("GET", "/", "127.0.0.1:99", "localhost:3000", nil); a.StatusCode != http.StatusOK {
		t.Errorf("/ is answered with %d to a program", a.StatusCode)
	}
	text, _ := io.ReadAll(n.visit("GET", "/sign-in", "127.0.0.1:99", "localhost:3000", nil).Body)
	if !strings.Contains(string(text), "open the newest sign-in link in the output of the command “postrider dev”") {
		t.Errorf("the sign-in page does not say how to sign in:\n%s", text)
	}
}

// TestUnknownAddresses checks that browsers get a page for an address that does not exist. Programs, and all requests
// for paths of the API, get the API's response.
func TestUnknownAddresses(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir}
	p.must("migrate")
	p.key("Acme")
	n := p.start()
	browser, program := http.Header{"Accept": {"text/html,*/*"}}, http.Header{"Accept": {"*/*"}}
	withKey := http.Header{"Accept": {"text/html"}, "Authorization": {"Bearer re_x"}}
	read := func(method, path string, header http.Header) (status int, kind, text string) {
		a := n.visit(method, path, "127.0.0.1:99", "localhost:3000", header)
		body, _ := io.ReadAll(a.Body)
		return a.StatusCode, a.Header.Get("Content-Type"), string(body)
	}
	for _, path := range []string{"/nowhere", "/nowhere/at/all", "/domain", "/accounts"} {
		status, kind, text := read("GET", path, browser)
		if status != http.StatusNotFound || !strings.HasPrefix(kind, "text/html") ||
			!strings.Contains(text, "There is no page at this address.") {
			t.Errorf("%s is answered to a browser with %d %s", path, status, kind)
		}
		for _, header := range []http.Header{program, withKey} {
			status, kind, _ := read("GET", path, header)
			if status == http.StatusOK || !strings.HasPrefix(kind, "application/json") {
				t.Errorf("%s is answered to a program with %d %s", path, status, kind)
			}
		}
	}
	for _, path := range []string{"/emails", "/emails/nowhere/at/all", "//emails", "/domains/x/y", "/healthz/x",
		"/openapi.json"} {
		for _, method := range []string{"GET", "POST", "DELETE"} {
			status, kind, text := read(method, path, browser)
			want, wantKind, wantText := read(method, path, program)
			if status != want || kind != wantKind || text != wantText || strings.Contains(kind, "html") {
				t.Errorf("%s %s is answered with %d %s to a browser, and with %d %s to a program", method, path, status, kind,
					want, wantKind)
			}
		}
	}
	if status, kind, _ := read("POST", "/", browser); status != http.StatusUnauthorized || strings.Contains(kind, "html") {
		t.Errorf("POST / is answered with %d %s", status, kind)
	}
	if status, kind, _ := read("GET", "/favicon.ico", browser); status != http.StatusOK || kind != "image/svg+xml" {
		t.Errorf("/favicon.ico is answered with %d %s", status, kind)
	}
	a := n.visit("GET", "/people?a=1", "127.0.0.1:99", "localhost:3000", browser)
	if a.StatusCode != http.StatusPermanentRedirect || a.Header.Get("Location") != "/app/people?a=1" {
		t.Errorf("an old address is answered with %d to %s", a.StatusCode, a.Header.Get("Location"))
	}
}

// TestProxiesAreNotSignedIn checks that no request signs a visitor in without the link, whatever headers a proxy on
// this machine adds or leaves out.
func TestProxiesAreNotSignedIn(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir()}
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir}
	p.must("migrate")
	key := p.key("Acme")
	n := p.start()
	n.developerPath(key)
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, host := range []string{"localhost", "127.0.0.1", "[::1]:3000", "evil.example", "127.0.0.1.nip.io"} {
		for _, name := range []string{"Accept", "X-Forwarded-For", "Forwarded", "Via", "X-Real-IP", "CF-Connecting-IP",
			"X-Forwarded-Proto", "X-Original-Forwarded-For", "X-Unusual"} {
			for _, path := range []string{"/app/people", "/app/account", "/app/approvals", "/app/apps", "/people", "/",
				"/sign-in", "/dev/sign-in"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Host = host
				r.Header.Set(name, "127.0.0.1")
				a, err := c.Do(r)
				if err != nil {
					t.Fatal(err)
				}
				a.Body.Close()
				if len(a.Cookies()) != 0 {
					t.Errorf("%s at %s with %s sets %v", path, host, name, a.Cookies())
				}
			}
		}
	}
	if found := n.count(`SELECT COUNT(*) FROM user_sessions`); found != 0 {
		t.Errorf("%d sessions", found)
	}
}

// In development, an invitation email goes to the outbox, and its link opens the page for accepting the invitation.
func TestInvitationInDevelopment(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Development")
		n := p.start()
		who, err := n.Teams.Authenticate(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		link := n.developerPath(key)
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
		read(c.Get(n.url + link))
		page := read(c.PostForm(n.url+"/app/people/invite", url.Values{"team": {who.TeamID}, "email": {"bob@acme.example"},
			"role": {"member"}}))
		if !strings.Contains(page, "bob@acme.example") {
			t.Errorf("the page does not show the invitation:\n%s", page)
		}
		var raw string
		eventually(t, "the invitation is in the outbox", func() bool {
			all, err := n.Outbox.All(t.Context())
			if err == nil && len(all) == 1 {
				raw = read(http.Get(n.url + "/dev/outbox/" + all[0].ID + "/raw"))
			}
			return raw != ""
		})
		link = regexp.MustCompile(`http://[^\s]+/invitations/[\w-]+`).FindString(mailparse.Parse([]byte(raw)).Text())
		if !strings.HasPrefix(link, n.url) {
			t.Fatalf("the email has no link to %s:\n%s", n.url, raw)
		}
		if page := read(http.Get(link)); !strings.Contains(page, "Join Development") {
			t.Errorf("the link shows\n%s", page)
		}
	})
}
