package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/front/oauth"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// The owners of two teams use web pages, OAuth clients and tools at the same time. Each owner sees only their own
// team's data.
func TestTwoTeams(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		at := f.installation()
		zoe, wim := f.person("zebra", f.Acme, at), f.person("walrus", f.Other, at)
		zoe.ids["received"] = f.receive("From: zebra@reader.example\nSubject: zebra\n\nzebra\n")
		t.Run("both", func(t *testing.T) {
			for _, pair := range [][2]*person{{zoe, wim}, {wim, zoe}} {
				t.Run(pair[0].name, func(t *testing.T) {
					t.Parallel()
					pair[0].pagesLack(t, pair[1])
					pair[0].programLacks(t, pair[1])
					for range 3 {
						pair[0].toolsLack(t, pair[1])
					}
				})
			}
		})
		for _, p := range []*person{zoe, wim} {
			if status, body := p.call("GET", "/approvals/"+p.ids["approvals"], nil); status != 200 ||
				!strings.Contains(body, `"pending"`) {
				t.Errorf("what %s asked for: %d %s", p.name, status, body)
			}
		}
		if n := f.sent(); n != 2 {
			t.Errorf("%d emails were sent", n)
		}
	})
}

// installation serves the web pages, the API, OAuth and MCP at the public address over TLS, and returns a transport
// that connects to that server.
func (f *fixture) installation() http.RoundTripper {
	f.T.Helper()
	site := web.New(web.Config{PublicURL: testnode.PublicURL}, f.Users, f.Members, f.Log)
	pages := http.NewServeMux()
	testnode.Must(signin.New(signin.Deps{Site: site, DB: f.DB, Users: f.Users, Members: f.Members, Teams: f.Teams,
		Audit: f.Audit, Grants: f.Grants, Approvals: f.Approvals, Templates: f.Templates,
		Automations: func(context.Context, string, []string) ([]automations.AppAutomation, error) {
			return nil, nil
		}})).Register(pages)
	grants := oauth.New(oauth.Options{PublicURL: testnode.PublicURL, MCP: Path, Grants: f.Grants,
		Members: f.Members, Teams: f.Teams, Site: site, Log: f.Log})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch path := r.URL.Path; {
		case grants.Serves(path):
			grants.ServeHTTP(w, r)
		case f.Serves(path):
			f.ServeHTTP(w, r)
		case signin.Serves(path):
			pages.ServeHTTP(w, r)
		default:
			f.API.ServeHTTP(w, r)
		}
	}))
	f.T.Cleanup(server.Close)
	at := server.Client().Transport.(*http.Transport).Clone()
	at.TLSClientConfig.ServerName = "example.com" // the host name in httptest's certificate
	at.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}
	return at
}

// person is the owner of a team, with a browser and an OAuth client.
type person struct {
	*fixture
	name    string // text that occurs in all of the person's objects and nowhere else
	teamID  string
	userID  string
	at      http.RoundTripper
	browser *http.Client
	client  url.Values // the OAuth client's authorization request
	token   string     // the OAuth client's access token
	agent   agent
	ids     map[string]string // ids of the person's objects, by API path
	code    string            // confirmation code for an email
}

func (f *fixture) person(name string, by teams.Actor, at http.RoundTripper) *person {
	f.T.Helper()
	ctx := f.T.Context()
	const secret, redirect, verifier = "correct horse battery", "http://127.0.0.1:4711/callback",
		"0123456789012345678901234567890123456789012"
	u, err := f.Users.Create(ctx, users.NewUser{Email: name + "@people.example", Name: name, Password: secret})
	f.Must(err)
	f.Update(func(tx *db.Tx) error { return f.Members.AddIn(ctx, tx, by.TeamID, u.ID, teams.Owner) })
	domain := f.Verified(by.TeamID, domains.NewDomain{Name: name + ".example"})
	jar, err := cookiejar.New(nil)
	f.Must(err)
	p := &person{fixture: f, name: name, teamID: by.TeamID, userID: u.ID, at: at}
	p.browser = &http.Client{Jar: jar, Transport: at,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	wantStatus := func(what string, got, want int, body string) {
		f.T.Helper()
		if got != want {
			f.T.Fatalf("%s: %s: %d %s", name, what, got, body)
		}
	}
	status, body, _ := p.browse("POST", "/sign-in", url.Values{"email": {u.Email}, "password": {secret}})
	wantStatus("sign in", status, 303, body)
	status, body = p.call("POST", "/oauth/register", with{"client_name": name + " notes",
		"redirect_uris": []string{redirect}})
	wantStatus("register a program", status, 201, body)
	var answer struct {
		ID     string
		Client string `json:"client_id"`
		Access string `json:"access_token"`
	}
	f.Must(json.Unmarshal([]byte(body), &answer))
	hash := sha256.Sum256([]byte(verifier))
	p.client = url.Values{"client_id": {answer.Client}, "response_type": {"code"}, "redirect_uri": {redirect},
		"scope": {"full_access"}, "state": {"x"}, "code_challenge": {base64.RawURLEncoding.EncodeToString(hash[:])},
		"code_challenge_method": {"S256"}}
	status, body, header := p.browse("POST", "/oauth/authorize", p.consenting(by.TeamID))
	wantStatus("consent", status, 303, body)
	to, err := url.Parse(header.Get("Location"))
	f.Must(err)
	status, body, _ = p.browse("POST", "/oauth/token", url.Values{"grant_type": {"authorization_code"},
		"client_id": {answer.Client}, "code": {to.Query().Get("code")}, "redirect_uri": {redirect},
		"code_verifier": {verifier}})
	wantStatus("get a token", status, 200, body)
	f.Must(json.Unmarshal([]byte(body), &answer))
	p.token = answer.Access

	create := func(path string, in with) string {
		f.T.Helper()
		status, body := p.call("POST", path, in)
		if answer.ID = ""; status >= 300 || json.Unmarshal([]byte(body), &answer) != nil || answer.ID == "" {
			f.T.Fatalf("%s: POST %s: %d %s", name, path, status, body)
		}
		return answer.ID
	}
	segment := create("/segments", with{"name": name})
	p.ids = map[string]string{"segments": segment, "domains": domain.ID, "emails": create("/emails", p.email()),
		"approvals": create("/approvals", p.email()),
		"contacts":  create("/contacts", with{"email": name + "@reader.example"}),
		"templates": create("/templates", with{"name": name, "html": "<p>" + name + "</p>"}),
		"broadcasts": create("/broadcasts", with{"segment_id": segment, "from": "a@" + name + ".example",
			"subject": name,
			"text":    name})}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx,
		&mcp.StreamableClientTransport{Endpoint: testnode.PublicURL + Path, HTTPClient: &http.Client{Transport: p},
			MaxRetries: -1, DisableStandaloneSSE: true}, nil)
	f.Must(err)
	f.T.Cleanup(func() { session.Close() })
	p.agent = agent{f.T, session}
	var ready prepared
	p.agent.do("send_email", p.email(), &ready)
	p.code = ready.Code
	return p
}

func (p *person) email() with {
	return with{"from": "a@" + p.name + ".example", "to": []string{p.name + "@reader.example"}, "subject": p.name,
		"text": p.name}
}

// consenting returns the consent form that the person submits to allow the OAuth client to act for a team.
func (p *person) consenting(teamID string) url.Values {
	form := url.Values{"team": {teamID}, "decision": {"allow"}}
	for name, values := range p.client {
		form[name] = values
	}
	return form
}

// RoundTrip sends a request with the OAuth client's access token.
func (p *person) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+p.token)
	return p.at.RoundTrip(r)
}

// browse requests a page or submits a form.
func (p *person) browse(method, path string, form url.Values) (status int, body string, header http.Header) {
	return p.send(p.browser, method, path, form.Encode(), "application/x-www-form-urlencoded")
}

// call sends a request to the API as the OAuth client.
func (p *person) call(method, path string, in with) (status int, body string) {
	text, err := json.Marshal(in)
	p.Must(err)
	status, body, _ = p.send(&http.Client{Transport: p}, method, path, string(text), "application/json")
	return status, body
}

func (p *person) send(c *http.Client, method, path, body, media string) (int, string, http.Header) {
	var content io.Reader
	if method != http.MethodGet {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(context.WithoutCancel(p.T.Context()), method, testnode.PublicURL+path, content)
	p.Must(err)
	r.Header.Set("Content-Type", media)
	r.Header.Set("Accept", "text/html, application/json")
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	a, err := c.Do(r)
	p.Must(err)
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	p.Must(err)
	return a.StatusCode, string(text), a.Header
}

// lacks checks that a string contains none of the other person's data.
func (p *person) lacks(t *testing.T, what, text string, other *person) {
	t.Helper()
	secrets := []string{other.name, other.teamID, other.userID, other.code}
	for _, of := range slices.AppendSeq(secrets, maps.Values(other.ids)) {
		if strings.Contains(text, of) {
			t.Errorf("%s: %s has %s of %s: %s", p.name, what, of, other.name, text)
		}
	}
}

func (p *person) pagesLack(t *testing.T, other *person) {
	t.Helper()
	for path, own := range map[string]string{"/app/account": p.name, "/app/account/team": "", "/app/people": p.name,
		"/app/approvals": p.name, "/app/approvals/" + p.ids["approvals"]: p.name,
		"/oauth/authorize?" + p.client.Encode(): p.name,
		// The consent page ignores the other team's id and shows the visitor's own team.
		"/oauth/authorize?team=" + other.teamID + "&" + p.client.Encode(): p.teamID} {
		status, body, _ := p.browse("GET", path, nil)
		if status != 200 || !strings.Contains(body, own) {
			t.Errorf("%s: %s: %d %s", p.name, path, status, body)
		}
		p.lacks(t, path, body, other)
	}
	theirs := "/app/approvals/" + other.ids["approvals"]
	if status, body, _ := p.browse("GET", theirs, nil); status != 404 || strings.Contains(body, other.name) {
		t.Errorf("%s sees what waits for %s: %d %s", p.name, other.name, status, body)
	}
	for _, path := range []string{theirs + "/send", theirs + "/reject", "/app/people/" + other.userID + "/remove"} {
		for teamID, want := range map[string]int{p.teamID: 404, other.teamID: 403, "": 403} {
			status, body, _ := p.browse("POST", path, url.Values{"team": {teamID}})
			if status != want || strings.Contains(body, other.name) {
				t.Errorf("%s: POST %s for the team %q: %d %s", p.name, path, teamID, status, body)
			}
		}
	}
	status, body, header := p.browse("POST", "/oauth/authorize", p.consenting(other.teamID))
	if status != 403 || header.Get("Location") != "" {
		t.Errorf("%s lets a program act for %s: %d %s", p.name, other.name, status, body)
	}
}

func (p *person) programLacks(t *testing.T, other *person) {
	t.Helper()
	for path := range p.ids {
		if path == "received" {
			continue
		}
		status, body := p.call("GET", "/"+path, nil)
		if status != 200 || !strings.Contains(body, p.name) {
			t.Errorf("%s: %s: %d %s", p.name, path, status, body)
		}
		p.lacks(t, path, body, other)
		status, body = p.call("GET", "/"+path+"/"+other.ids[path], nil)
		if status != 404 || strings.Contains(body, other.name) {
			t.Errorf("%s: one of the %s of %s: %d %s", p.name, path, other.name, status, body)
		}
	}
	for _, path := range []string{"/oauth/grants", "/api-keys", "/audit", "/team", "/team/members", "/usage", "/logs",
		"/emails/receiving"} {
		status, body := p.call("GET", path, nil)
		if status != 200 {
			t.Errorf("%s: %s: %d %s", p.name, path, status, body)
		}
		p.lacks(t, path, body, other)
	}
}

func (p *person) toolsLack(t *testing.T, other *person) {
	t.Helper()
	for _, name := range p.agent.tools() {
		what, lists := strings.CutPrefix(name, "list_")
		if !lists || name == "list_email_events" || strings.HasPrefix(name, "list_broadcast_") {
			continue
		}
		text, failed := p.agent.ask(name, nil)
		if _, own := p.ids[what]; failed || own && what != "received" && !strings.Contains(text, p.name) {
			t.Errorf("%s: %s: %s", p.name, name, text)
		}
		p.lacks(t, name, text, other)
	}
	for name, in := range map[string]with{"get_email": {"email_id": other.ids["emails"]},
		"list_email_events": {"email_id": other.ids["emails"]}, "explain_delivery": {"email_id": other.ids["emails"]},
		"get_approval": {"approval_id": other.ids["approvals"]}, "get_domain": {"domain_id": other.ids["domains"]},
		"get_domain_setup":    {"domain_id": other.ids["domains"]},
		"change_domain_setup": {"domain_id": other.ids["domains"], "setup": "cname"},
		"get_contact":         {"contact": other.ids["contacts"]}, "get_template": {"template": other.ids["templates"]},
		"render_template":           {"template": other.ids["templates"], "version": "draft"},
		"get_broadcast":             {"broadcast_id": other.ids["broadcasts"]},
		"get_broadcast_results":     {"broadcast_id": other.ids["broadcasts"]},
		"list_broadcast_recipients": {"broadcast_id": other.ids["broadcasts"], "type": "sent"},
		"list_broadcast_links":      {"broadcast_id": other.ids["broadcasts"]},
		"count_broadcast_audience":  {"broadcast_id": other.ids["broadcasts"]},
		"test_broadcast":            {"broadcast_id": other.ids["broadcasts"], "to": "a@example.net"},
		"verify_domain":             {"domain_id": other.ids["domains"]},
		"update_contact":            {"contact": other.ids["contacts"], "first_name": p.name},
		"update_broadcast":          {"broadcast_id": other.ids["broadcasts"], "subject": p.name},
	} {
		if text, failed := p.agent.ask(name, in); !failed || !strings.HasPrefix(text, "not_found (404): ") ||
			strings.Contains(text, other.name) {
			t.Errorf("%s: %s of %s: %s", p.name, name, other.name, text)
		}
	}
	if id := other.ids["received"]; id != "" {
		text, failed := p.agent.ask("get_received", with{"email_id": id})
		if !failed || strings.Contains(text, other.name) {
			t.Errorf("%s: what %s has received: %s", p.name, other.name, text)
		}
	}
	if text, failed := p.agent.ask("confirm_send", confirming(other.email(), other.code)); !failed ||
		!strings.Contains(text, "to another program") {
		t.Errorf("%s confirms an email of %s: %s", p.name, other.name, text)
	}
}
