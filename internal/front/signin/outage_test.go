package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// outage is a database that a test can take away: PostgreSQL behind a proxy that refuses connections, or SQLite on a
// disk that cannot be read.
type outage struct {
	d     *db.DB
	trace *dbtest.Trace
	begin func()
	end   func()
}

// eachAway runs a test with each kind of outage.
func eachAway(t *testing.T, f func(t *testing.T, o *outage)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) {
		path := dbtest.SQLiteFile(t)
		o := &outage{end: func() {}}
		o.d, o.trace = dbtest.TracedWith(t, db.Options{URL: path})
		o.begin = func() { o.end = dbtest.Unreadable(t, path) }
		f(t, o)
	})
	t.Run("postgres", func(t *testing.T) {
		proxy := dbtest.Proxy(t)
		o := &outage{begin: proxy.Refuse}
		o.d, o.trace = dbtest.TracedWith(t, dbtest.Through(proxy, db.Options{}))
		o.end = func() {
			if err := proxy.Pass(); err != nil {
				t.Error(err)
			}
		}
		f(t, o)
	})
}

// again repeats a request as long as the database cannot be reached, for at most ten seconds.
func (b *browser) again(request func()) *browser {
	b.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if request(); b.status != 503 {
			return b
		}
		if time.Now().After(end) {
			b.t.Fatalf("the database does not come back: %s", b.body)
		}
	}
}

// If the database goes away after a form was stored, the page says so.
func TestOutageAfterCommit(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, o *outage) {
		x := newFixture(t, o.d, users.OIDCConfig{})
		x.members.Mail = nil // the page shows the link of an invitation
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example").get("/app/people").want(200, "People of Acme")
		o.trace.Before("WHERE i.team_id = $1 AND i.state = $2", o.begin) // the list, after the invitation is stored
		b.submit("/app/people/invite", "email", "eve@acme.example", "role", "viewer").
			want(503, "The database cannot be reached at present. Your form, or a part of it, is stored already. "+
				"This page keeps what you typed. Look before you submit it again.", `value="eve@acme.example"`,
				`data-back="The database can be reached again. Look before you submit the form again."`)
		if strings.Contains(b.body, "nothing was changed") {
			t.Errorf("the page says that nothing was changed: %s", b.body)
		}
		o.end()
		form := b.form("/app/people/invite")
		b.again(func() { b.post("/app/people/invite", form) }).want(200, "eve@acme.example")
	})
}

// An invitation is accepted whole, or not at all: the same form can be submitted again after an outage.
func TestOutageWhileAccepting(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, o *outage) {
		x := newFixture(t, o.d, users.OIDCConfig{})
		x.person("ada@acme.example", teams.Owner)
		x.person("olga@acme.example", "")
		x.browser(t).signIn("ada@acme.example").get("/app/people").
			submit("/app/people/invite", "email", "olga@acme.example", "role", "viewer").want(200)
		link := x.lastLink("olga@acme.example")
		b := x.browser(t).signIn("olga@acme.example").get(link).want(200, "Join Acme")
		form := b.form(link)
		o.trace.Before("SET last_team", o.begin)
		b.c.CheckRedirect = noRedirects
		b.post(link, form)
		if o.d.Engine() == "postgres" { // SQLite's writer may have the pages that it needs in its cache
			b.want(503, "so nothing was changed")
		}
		o.end()
		if b.status == 503 {
			b.again(func() { b.post(link, form) })
		}
		b.want(303)
		b.c.CheckRedirect = nil
		b.again(func() { b.get("/app/people") }).want(200, "People of Acme")
	})
}

// A visitor is signed in although the browser's earlier session could not be ended.
func TestOutageAfterSignIn(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, o *outage) {
		x := newFixture(t, o.d, users.OIDCConfig{})
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example")
		o.trace.Before("DELETE FROM user_sessions WHERE id = ", o.begin)
		b.c.CheckRedirect = noRedirects
		b.post("/sign-in", url.Values{"email": {"ada@acme.example"}, "password": {password}}).want(303)
		o.end()
		b.c.CheckRedirect = nil
		b.again(func() { b.get("/app/account") }).want(200, "Your account")
	})
}

// A sign-in at the provider that an outage has stopped continues when its page is loaded again, although the provider
// accepts each code once. It cannot be repeated afterwards.
func TestOutageDuringOIDC(t *testing.T) {
	t.Parallel()
	eachAway(t, func(t *testing.T, o *outage) {
		p := newProvider(t)
		x := newFixture(t, o.d, users.OIDCConfig{Issuer: p.URL, ClientID: "postrider", ClientSecret: "s3cret",
			Domains: []string{"allowed.example"}})
		for name, arm := range map[string]func(){
			"before the exchange":      func() { o.begin() },
			"during the exchange":      func() { p.asked = func() { p.asked = nil; o.begin() } },
			"while an account is made": func() { o.trace.Before("INSERT INTO users", o.begin) },
		} {
			b := x.browser(t)
			to := b.begin("/sign-in/oidc?next=%2Fapp%2Faccount%2Fteam")
			arm()
			address := strings.ReplaceAll(name, " ", "-") + "@allowed.example"
			p.through(b, to, name, address)
			if b.status != 503 && o.d.Engine() == "postgres" {
				t.Errorf("%s: %d", name, b.status)
			}
			callback, cookies := b.path, b.cookies()
			o.end()
			if b.status == 503 {
				b.want(503, "This page tries again by itself")
				b.again(func() { b.head(callback) })
				b.again(func() { b.get(callback) })
			}
			b.want(200, "You are not a member of a team")
			if n := b.kept("oidc"); n != 0 {
				t.Errorf("%s: the browser keeps %d cookies of the sign-in", name, n)
			}
			if !strings.HasPrefix(callback, "/sign-in/oidc/callback") { // nothing was repeated
				continue
			}
			b.get(callback).want(403, "did not start in this browser")
			other := x.browser(t)
			other.c.Jar.SetCookies(home, cookies)
			other.get(callback).want(401, "not begun in this browser")
			if other.kept("oidc") != 0 {
				t.Errorf("%s: the browser keeps the cookies of a sign-in that is over", name)
			}
		}

		// A sign-in that the provider has refused is over.
		b := x.browser(t)
		at, err := url.Parse(b.begin("/sign-in/oidc"))
		x.Must(err)
		b.get("/sign-in/oidc/callback?error=access_denied&state=" + url.QueryEscape(at.Query().Get("state"))).want(403)
		if n := b.kept("oidc"); n != 0 {
			t.Errorf("the browser keeps %d cookies of a sign-in that was refused", n)
		}
	})
}

var home = &url.URL{Scheme: "https", Host: strings.TrimPrefix(testnode.PublicURL, "https://"), Path: "/"}

// cookies returns the browser's cookies of a sign-in at the provider.
func (b *browser) cookies() []*http.Cookie {
	all := slices.DeleteFunc(b.c.Jar.Cookies(home),
		func(c *http.Cookie) bool { return !strings.Contains(c.Name, "-oidc") })
	for _, c := range all {
		c.Path, c.Secure = "/", true
	}
	return all
}

// head asks for a page without its content, as the script of an outage does.
func (b *browser) head(path string) {
	r, err := http.NewRequestWithContext(b.t.Context(), "HEAD", testnode.PublicURL+path, nil)
	b.Must(err)
	r.Header.Set("Accept", "application/json") // the response is no page
	b.do(r)
}

func noRedirects(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
