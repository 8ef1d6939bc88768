package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	redirect = "http://127.0.0.1:4711/callback"
	verifier = "a-verifier-of-43-characters-at-least-0123456789"
	password = "correct horse battery"
	mcp      = testnode.PublicURL + "/mcp"
)

// fixture is an OAuth server on a test node.
type fixture struct {
	*testnode.Node
	*Server
	cookies []*http.Cookie
}

func each(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d)) })
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	t.Helper()
	n := testnode.New(t, d, testnode.Options{})
	g := testnode.Must(grants.New(grants.Config{Issuer: testnode.PublicURL, Resources: []string{testnode.PublicURL, mcp}},
		grants.Deps{DB: d, Keys: n.Keys, Teams: n.Teams, Members: n.Members, Audit: n.Audit, Log: n.Log,
			OnStop: n.Grants.OnStop}))
	n.Grants = g
	site := web.New(web.Config{PublicURL: testnode.PublicURL}, n.Users, n.Members, n.Log)
	return &fixture{Node: n, Server: New(Options{PublicURL: testnode.PublicURL, MCP: "/mcp", Grants: g,
		Members: n.Members, Teams: n.Teams, Site: site, Log: n.Log})}
}

// signIn creates a user with the given roles in teams and signs in the fixture's browser as that user.
func (f *fixture) signIn(email string, roles map[string]teams.Role) {
	f.T.Helper()
	ctx := context.WithoutCancel(f.T.Context())
	u, err := f.Users.Create(ctx, users.NewUser{Email: email, Password: password})
	f.Must(err)
	for teamID, role := range roles {
		f.Update(func(tx *db.Tx) error { return f.Node.Members.AddIn(ctx, tx, teamID, u.ID, role) })
	}
	o, err := f.Users.SignIn(ctx, users.Attempt{Email: email, Password: password})
	f.Must(err)
	w := httptest.NewRecorder()
	f.Site.SignIn(w, httptest.NewRequest(http.MethodGet, testnode.PublicURL+"/", nil), o.Token)
	f.cookies = w.Result().Cookies()
}

// ask sends a request. A body of type url.Values is sent as a form, and a string is sent as JSON. The argument header
// contains alternating names and values.
func (f *fixture) ask(method, path string, body any, header ...string) *httptest.ResponseRecorder {
	f.T.Helper()
	var text, media string
	switch b := body.(type) {
	case url.Values:
		text, media = b.Encode(), "application/x-www-form-urlencoded"
	case string:
		text, media = b, "application/json"
	}
	r := httptest.NewRequestWithContext(f.T.Context(), method, testnode.PublicURL+path, strings.NewReader(text))
	r.RemoteAddr = "192.0.2.1:1234"
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	for _, c := range f.cookies {
		r.AddCookie(c)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	if !f.Serves(r.URL.Path) {
		f.T.Fatalf("%s is not served", r.URL.Path)
	}
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	return w
}

// register registers a client with one redirect URI and returns the client's id.
func (f *fixture) register(name, redirect string) string {
	f.T.Helper()
	w := f.ask("POST", "/oauth/register", `{"client_name":"`+name+`","redirect_uris":["`+redirect+`"]}`)
	var c struct {
		ID string `json:"client_id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != 201 || c.ID == "" {
		f.T.Fatalf("%d %s", w.Code, w.Body)
	}
	return c.ID
}

func challengeOf(verifier string) string {
	hash := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(hash[:])
}

// query returns the query parameters of a valid authorization request.
func query(clientID, redirect, scope string) url.Values {
	return url.Values{"client_id": {clientID}, "response_type": {"code"}, "redirect_uri": {redirect}, "scope": {scope},
		"state": {"a state & more"}, "code_challenge": {challengeOf(verifier)}, "code_challenge_method": {"S256"}}
}

// sentTo returns the parameters of a redirect, and fails the test if the redirect does not lead to the given address.
func (f *fixture) sentTo(w *httptest.ResponseRecorder, address string) url.Values {
	f.T.Helper()
	to := w.Header().Get("Location")
	rest, ok := strings.CutPrefix(to, address)
	if (w.Code != 302 && w.Code != 303) || !ok || rest == "" || (rest[0] != '?' && rest[0] != '&') {
		f.T.Fatalf("%d to %q, want %q: %s", w.Code, to, address, w.Body)
	}
	q, err := url.ParseQuery(rest[1:])
	f.Must(err)
	if q.Get("iss") != testnode.PublicURL || q.Get("state") != "a state & more" {
		f.T.Errorf("answered with %v", q)
	}
	return q
}

// tokens exchanges an authorization code for tokens.
func (f *fixture) tokens(clientID, redirect, code string) (t tokenWire) {
	f.T.Helper()
	w := f.ask("POST", "/oauth/token", url.Values{"grant_type": {"authorization_code"}, "client_id": {clientID},
		"code": {code}, "redirect_uri": {redirect}, "code_verifier": {verifier}})
	if err := json.Unmarshal(w.Body.Bytes(), &t); err != nil || w.Code != 200 {
		f.T.Fatalf("%d %s", w.Code, w.Body)
	}
	return t
}

// wantRefusal checks that a response is the given error in the format that RFC 6749 defines.
func wantRefusal(t *testing.T, w *httptest.ResponseRecorder, status int, code grants.Code) {
	t.Helper()
	var r refusal
	if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != status || r.Error != code ||
		r.Description == "" {
		t.Errorf("answer %d %s, want %d %s", w.Code, w.Body, status, code)
	}
	if h := w.Header(); h.Get("Cache-Control") != "no-store" || !strings.HasPrefix(h.Get("Content-Type"),
		"application/json") {
		t.Errorf("header %v", h)
	}
}

// page holds the text and the forms of an HTML page.
type page struct {
	text  string
	forms []form
}

// form is an HTML form with its fields, button names and choices.
type form struct {
	method, action string
	fields         url.Values
	buttons        []string
}

func readPage(t *testing.T, w *httptest.ResponseRecorder) (p page) {
	t.Helper()
	doc, err := html.Parse(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	attr := func(n *html.Node, name string) string {
		for _, a := range n.Attr {
			if a.Key == name {
				return a.Val
			}
		}
		return ""
	}
	for n := range doc.Descendants() {
		switch {
		case n.Type == html.TextNode && n.Parent.Data != "style" && n.Parent.Data != "script":
			p.text += n.Data
		case n.Type == html.ElementNode && n.Data == "form":
			p.forms = append(p.forms, form{method: attr(n, "method"), action: attr(n, "action"), fields: url.Values{}})
		case n.Type == html.ElementNode && len(p.forms) > 0:
			f := &p.forms[len(p.forms)-1]
			switch n.Data {
			case "input":
				f.fields.Add(attr(n, "name"), attr(n, "value"))
			case "option":
				f.buttons = append(f.buttons, attr(n, "value"))
			case "button":
				f.buttons = append(f.buttons, attr(n, "value"))
			}
		case n.Type == html.ElementNode && (n.Data == "img" || n.Data == "script" || n.Data == "iframe" ||
			n.Data == "link") && !strings.HasPrefix(attr(n, "src")+attr(n, "href"), web.AssetPrefix):
			t.Errorf("the page has %s %v", n.Data, n.Attr)
		}
	}
	return p
}

// form returns the page's form with the given method and action.
func (p *page) form(t *testing.T, method, action string) form {
	t.Helper()
	for _, f := range p.forms {
		if f.method == method && f.action == action {
			return f
		}
	}
	t.Fatalf("no form %s %s: %+v", method, action, p.forms)
	return form{}
}
