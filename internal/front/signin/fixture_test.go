package signin

import (
	"context"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// password is the password of all test users.
const password = "correct horse battery"

// mail is an email that was sent by the pages under test.
type mail struct{ to, text string }

// fixture holds the sign-in pages with a separate database.
type fixture struct {
	*testnode.Node
	users   *users.Service
	members *members.Service
	mails   []mail
	mux     *http.ServeMux
	second  int64 // the rate limit clock in seconds; each request advances it by one
	stopped bool  // whether the rate limit clock is stopped
}

func each(t *testing.T, f func(t *testing.T, x *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d, users.OIDCConfig{})) })
}

func newFixture(t *testing.T, d *db.DB, provider users.OIDCConfig) *fixture {
	n := testnode.New(t, d, testnode.Options{})
	x := &fixture{Node: n, mux: http.NewServeMux()}
	ofUsers, ofMembers := n.Users.Deps, n.Members.Deps
	x.users = testnode.Must(users.New(users.Config{PublicURL: testnode.PublicURL, OIDC: provider, HashMemory: 64},
		ofUsers))
	n.Users = x.users
	ofMembers.Users = x.users
	x.members = testnode.Must(members.New(ofMembers))
	n.Members = x.members
	send := func(_ context.Context, tx *db.Tx, to, _, text string) error {
		tx.AfterCommit(func() { x.mails = append(x.mails, mail{to, text}) })
		return nil
	}
	x.users.Mail, x.members.Mail = send, send
	site := web.New(web.Config{PublicURL: testnode.PublicURL, Limits: &teams.Limiter{Now: x.tick}}, x.users, x.members,
		n.Log)
	testnode.Must(New(Deps{Site: site, DB: d, Users: x.users, Members: x.members, Teams: n.Teams, Audit: n.Audit,
		Grants: n.Grants, Approvals: n.Approvals, Templates: n.Templates,
		Automations: func(context.Context, string, []string) ([]automations.AppAutomation, error) {
			return nil, nil
		}})).Register(x.mux)
	// Package dashboard serves the page to which a sign-in leads. Here, its address leads to the account.
	x.mux.Handle("GET /app/emails", http.RedirectHandler("/app/account", http.StatusSeeOther))
	return x
}

func (x *fixture) tick() time.Time {
	if !x.stopped {
		x.second++
	}
	return time.Unix(x.second, 0)
}

// person creates a user with the given role in the team Acme. If role is "", the user is in no team.
func (x *fixture) person(email string, role teams.Role) users.User {
	x.T.Helper()
	u, err := x.users.Create(x.T.Context(), users.NewUser{Email: email, Name: strings.Split(email, "@")[0],
		Password: password})
	x.Must(err)
	if role != "" {
		x.Must(x.DB.Update(x.T.Context(), func(tx *db.Tx) error {
			return x.members.AddIn(x.T.Context(), tx, x.Acme.TeamID, u.ID, role)
		}))
	}
	return u
}

// work runs the users service's background work.
func (x *fixture) work() {
	ended, end := context.WithCancel(x.T.Context())
	end()
	x.Must(x.users.Run(ended))
}

// lastLink returns the path of the link in the email that was sent last.
func (x *fixture) lastLink(to string) string {
	x.T.Helper()
	x.work()
	if len(x.mails) == 0 || x.mails[len(x.mails)-1].to != to {
		x.T.Fatalf("no email was sent to %s: %+v", to, x.mails)
	}
	text := x.mails[len(x.mails)-1].text
	i := strings.LastIndex(text, testnode.PublicURL+"/")
	if i < 0 {
		x.T.Fatalf("the email has no link: %s", text)
	}
	return strings.Fields(text[i+len(testnode.PublicURL):])[0]
}

// browser is a simulated browser that stores cookies and submits forms.
type browser struct {
	*fixture
	t       *testing.T
	c       *http.Client
	address string
	headers http.Header // added to each request

	status int
	path   string // path and query after redirects
	body   string
	header http.Header
}

func (x *fixture) browser(t *testing.T) *browser {
	jar, err := cookiejar.New(nil)
	x.Must(err)
	b := &browser{fixture: x, t: t, address: "192.0.2.1:4711",
		headers: http.Header{"User-Agent": {"Firefox/140.0 (Linux)"}}}
	b.c = &http.Client{Jar: jar, Transport: b}
	return b
}

// RoundTrip sends a request to the pages.
func (b *browser) RoundTrip(r *http.Request) (*http.Response, error) {
	for name, values := range b.headers {
		r.Header[name] = values
	}
	r.RemoteAddr = b.address
	r.RequestURI = r.URL.RequestURI()
	r.Host = r.URL.Host
	if r.Body == nil {
		r.Body = http.NoBody
	}
	w := httptest.NewRecorder()
	b.mux.ServeHTTP(w, r)
	answer := w.Result()
	answer.Request = r
	// Browsers reject cookies whose name and value together exceed 4,096 bytes (RFC 6265bis section 5.7).
	answer.Header["Set-Cookie"] = slices.DeleteFunc(answer.Header["Set-Cookie"], func(line string) bool {
		pair, _, _ := strings.Cut(line, ";")
		return len(pair) > 4097 // the length includes the equals sign
	})
	return answer, nil
}

func (b *browser) do(r *http.Request) *browser {
	b.t.Helper()
	answer, err := b.c.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	b.status, b.path, b.body, b.header = answer.StatusCode, answer.Request.URL.RequestURI(), string(text), answer.Header
	// Mail for a frame is no page.
	if strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html") &&
		!strings.HasPrefix(answer.Header.Get("Content-Security-Policy"), "sandbox") {
		b.checkPage()
	}
	return b
}

func (b *browser) get(path string) *browser {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), "GET", testnode.PublicURL+path, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.do(r)
}

// post sends a form, even if the current page does not contain it.
func (b *browser) post(path string, form url.Values) *browser {
	b.t.Helper()
	return b.do(b.posting(path, form))
}

func (b *browser) posting(path string, form url.Values) *http.Request {
	r, err := http.NewRequestWithContext(b.t.Context(), "POST", testnode.PublicURL+path,
		strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	return r
}

// submit fills in and sends the page's form with the given action. The argument typed contains alternating field names
// and values.
func (b *browser) submit(action string, typed ...string) *browser {
	b.t.Helper()
	form := b.form(action)
	if form == nil {
		b.t.Fatalf("the page %s has no form for %s:\n%s", b.path, action, b.body)
	}
	for i := 0; i < len(typed); i += 2 {
		if !form.Has(typed[i]) {
			b.t.Fatalf("the form for %s has no field %s", action, typed[i])
		}
		form.Set(typed[i], typed[i+1])
	}
	return b.post(action, form)
}

// form returns the fields of the page's form with the given action, or nil if the page has no such form.
func (b *browser) form(action string) url.Values {
	var form url.Values
	for n := range elements(b.t, b.body) {
		if n.Data == "form" && attr(n, "action") == action {
			form = url.Values{}
			for x := range n.Descendants() {
				switch {
				case x.Data == "input":
					form.Set(attr(x, "name"), attr(x, "value"))
				case x.Data == "select":
					for o := range x.Descendants() {
						if o.Data == "option" && (has(o, "selected") || !form.Has(attr(x, "name"))) {
							form.Set(attr(x, "name"), attr(o, "value"))
						}
					}
				}
			}
		}
	}
	return form
}

// want checks that the page has the given status and contains each of the given strings.
func (b *browser) want(status int, texts ...string) *browser {
	b.t.Helper()
	plain := html.UnescapeString(b.body)
	for _, text := range texts {
		if !strings.Contains(plain, text) {
			b.t.Fatalf("%s does not say %q:\n%d %s", b.path, text, b.status, plain)
		}
	}
	if b.status != status {
		b.t.Fatalf("%s was answered with %d, want %d:\n%s", b.path, b.status, status, plain)
	}
	return b
}

// signIn gives the browser a session without using the sign-in page. TestSignIn covers the sign-in page.
func (b *browser) signIn(email string) *browser {
	b.t.Helper()
	var token string
	u, err := b.users.ByEmail(b.t.Context(), email)
	b.Must(err)
	b.Update(func(tx *db.Tx) error {
		token, err = b.users.StartIn(b.t.Context(), tx, u, "test", users.Client{
			Address: strings.Split(b.address, ":")[0], UserAgent: b.headers.Get("User-Agent")})
		return err
	})
	b.c.Jar.SetCookies(&url.URL{Scheme: "https", Host: strings.TrimPrefix(testnode.PublicURL, "https://"), Path: "/"},
		[]*http.Cookie{{Name: "__Host-postrider", Value: token, Path: "/", Secure: true}})
	return b.get("/app/account").want(200, "Your account")
}

// checkPage checks the requirements that apply to all pages: security headers are set, each input has a label, and
// descriptions that inputs refer to exist.
func (b *browser) checkPage() {
	b.t.Helper()
	policy := b.header.Get("Content-Security-Policy")
	for _, directive := range []string{"default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, directive) {
			b.t.Errorf("%s has the policy %q", b.path, policy)
		}
	}
	if b.header.Get("Cache-Control") != "no-store" || b.header.Get("X-Content-Type-Options") != "nosniff" ||
		b.header.Get("Referrer-Policy") != "same-origin" {
		b.t.Errorf("%s has the headers %v", b.path, b.header)
	}
	ids, labels, headings := map[string]bool{}, map[string]bool{}, 0
	for n := range elements(b.t, b.body) {
		if id := attr(n, "id"); id != "" {
			if ids[id] {
				b.t.Errorf("%s has the id %s twice", b.path, id)
			}
			ids[id] = true
		}
		if n.Data == "label" {
			labels[attr(n, "for")] = true
		}
		if n.Data == "h1" {
			headings++
		}
		if n.Data == "form" && attr(n, "method") != "dialog" && (attr(n, "method") != "post" || attr(n, "action") == "") {
			b.t.Errorf("%s has a form with the method %q for %q", b.path, attr(n, "method"), attr(n, "action"))
		}
	}
	for n := range elements(b.t, b.body) {
		if (n.Data == "input" && attr(n, "type") != "hidden" || n.Data == "select") && !labels[attr(n, "id")] &&
			attr(n, "aria-label") == "" {
			b.t.Errorf("%s: the input %s has no label", b.path, attr(n, "name"))
		}
		for id := range strings.FieldsSeq(attr(n, "aria-describedby")) {
			if !ids[id] {
				b.t.Errorf("%s: the input %s is described by %s, which is not there", b.path, attr(n, "name"), id)
			}
		}
	}
	if headings != 1 {
		b.t.Errorf("%s has %d first headings", b.path, headings)
	}
}

func elements(t *testing.T, page string) func(yield func(*html.Node) bool) {
	root, err := html.Parse(strings.NewReader(page))
	if err != nil {
		t.Fatal(err)
	}
	return func(yield func(*html.Node) bool) {
		for n := range root.Descendants() {
			if n.Type == html.ElementNode && !yield(n) {
				return
			}
		}
	}
}

func attr(n *html.Node, name string) string {
	i := slices.IndexFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
	if i < 0 {
		return ""
	}
	return n.Attr[i].Val
}

func has(n *html.Node, name string) bool {
	return slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == name })
}
