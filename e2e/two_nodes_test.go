package e2e

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// office holds a team and two nodes that share a PostgreSQL database; the second node connects through a proxy. With
// SQLite, a single node plays both roles.
type office struct {
	t      *testing.T
	a, b   *node
	public string // public URL, which leads to the first node
	env    []string
	link   *pgproxy.Proxy
	owner  http.CookieJar
	team   string
}

func newOffice(t *testing.T, engine string) *office {
	t.Helper()
	dir := t.TempDir()
	o := &office{t: t, env: []string{"POSTRIDER_SECRET_KEY=" + strings.Repeat("6f", 32),
		"POSTRIDER_BLOB_URL=" + t.TempDir(), "POSTRIDER_DATA_DIR=" + dir, "POSTRIDER_TRUST_DOMAINS=true",
		"POSTRIDER_TRANSPORT=capture",
		"POSTRIDER_RATE_LIMIT=0"}}
	if engine == "sqlite" {
		o.a = prepare(t, binary, o.env)
		o.b = o.a
	} else {
		source := dbtest.PostgresURL(t)
		link, err := pgproxy.Start(source)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(link.Close)
		o.link = link
		o.env = append(o.env, "POSTRIDER_DATABASE_URL="+source)
		o.a = prepare(t, binary, o.env)
		o.b = prepare(t, binary, append(o.env[:len(o.env):len(o.env)], "POSTRIDER_DATABASE_URL="+link.URL()))
	}
	_, port, err := net.SplitHostPort(o.a.addr)
	if err != nil {
		t.Fatal(err)
	}
	o.public = "http://127.0.0.1:" + port
	for _, n := range []*node{o.a, o.b} {
		if n.cmd != nil {
			break
		}
		n.args = []string{"serve", "--data-dir", dir, "--http-listen", n.addr, "--public-url", o.public,
			"--roles", "api,jobs"}
		n.tail = 2000
		n.launch()
		dir = t.TempDir()
	}
	var token string
	eventually(t, 20*time.Second, "a log has the link that works", func() bool {
		for _, n := range []*node{o.b, o.a} { // each start creates another setup link
			if _, after, ok := strings.Cut(n.out.String(), "/setup?token="); ok && token == "" {
				token = strings.FieldsFunc(after, func(r rune) bool { return !(r == '-' || r == '_' || r >= '0') })[0]
			}
		}
		return token != ""
	})
	o.owner = o.jar()
	o.expect(caller{addr: o.a.addr, jar: o.owner}, http.MethodPost, "/setup", url.Values{"token": {token},
		"email": {"ada@acme.example"}, "password": {password}, "new_team": {"Acme"}}, http.StatusSeeOther)
	return o
}

func (o *office) jar() http.CookieJar {
	jar, err := cookiejar.New(nil)
	if err != nil {
		o.t.Fatal(err)
	}
	return jar
}

// expect makes a request and fails the test unless the response has the given status.
func (o *office) expect(c caller, method, path string, body any, status int) reply {
	o.t.Helper()
	a, err := c.ask(o.t.Context(), method, path, body)
	if err != nil || a.status != status {
		o.t.Fatalf("%s %s is answered with %d, %v: %s", method, path, a.status, err, a.text)
	}
	return a
}

// command runs one of the program's commands while the nodes are running.
func (o *office) command(args ...string) string {
	o.t.Helper()
	out, errOut, err := command(o.t, o.env, args...)
	if err != nil {
		o.t.Fatalf("postrider %s: %v %s", strings.Join(args, " "), err, errOut)
	}
	return strings.TrimSpace(out)
}

// joins adds a member to the team and returns the member's cookie jar with a session, and an app that the member has
// connected.
func (o *office) joins(email, role string) (jar http.CookieJar, program caller) {
	o.t.Helper()
	jar = o.jar()
	said := o.command("users", "invite", email, "--team", "Acme", "--role", role)
	o.expect(caller{addr: o.a.addr, jar: jar}, http.MethodPost, invitationLink.FindString(said),
		url.Values{"password": {password}}, http.StatusSeeOther)
	return jar, o.allows(jar)
}

// allows grants a connected app full access on behalf of a user, and returns the app.
func (o *office) allows(jar http.CookieJar) caller {
	o.t.Helper()
	_, query, _ := strings.Cut(authorizePath(anyLoopback, grants.CLI, "full_access"), "?")
	form, err := url.ParseQuery(query)
	if err != nil {
		o.t.Fatal(err)
	}
	form.Set("decision", "allow")
	form.Set("team", o.teamID())
	a := o.expect(caller{addr: o.a.addr, jar: jar}, http.MethodPost, "/oauth/authorize", form, http.StatusSeeOther)
	to, err := url.Parse(a.location)
	if err != nil || to.Query().Get("code") == "" {
		o.t.Fatalf("no code in %s", a.location)
	}
	a = o.expect(caller{addr: o.b.addr}, http.MethodPost, "/oauth/token", codeFor(to.Query().Get("code")),
		http.StatusOK)
	var p pair
	if err := json.Unmarshal([]byte(a.text), &p); err != nil {
		o.t.Fatal(err)
	}
	return caller{addr: o.b.addr, bearer: p.Access}
}

func (o *office) teamID() string {
	if o.team == "" {
		o.team = strings.Fields(strings.Split(o.command("teams", "show", "Acme"), "\n")[0])[1]
	}
	return o.team
}

// first returns the id of the first object in a list, which is the newest.
func (o *office) first(c caller, path string) string {
	o.t.Helper()
	var list struct{ Data []struct{ ID string } }
	a := o.expect(c, http.MethodGet, path, nil, http.StatusOK)
	if err := json.Unmarshal([]byte(a.text), &list); err != nil || len(list.Data) == 0 {
		o.t.Fatalf("GET %s: %s %v", path, a.text, err)
	}
	return list.Data[0].ID
}

// look is a request to the other node, with the response statuses that the test expects before and after the change.
type look struct {
	by            caller
	method, path  string
	body          any
	before, after int
}

func (l *look) ask(t *testing.T) (reply, error) {
	accept := "text/html"
	if l.path == "/mcp" {
		accept = "application/json, text/event-stream"
	}
	return l.by.ask(t.Context(), l.method, l.path, l.body, "Accept", accept)
}

// TestTakenAway: when a node or a command revokes access, the other node refuses access as soon as it is notified. If
// the notification was lost, it refuses access within seconds.
func TestTakenAway(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		takeAway(t, newOffice(t, "sqlite"), "hinted")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		takeAway(t, newOffice(t, "postgres"), "hinted", "cut")
	})
}

func takeAway(t *testing.T, o *office, hows ...string) {
	key := o.command("keys", "create", "--create-team", "--team", "Acme")
	onA, onB := caller{addr: o.a.addr, bearer: key}, caller{addr: o.b.addr, bearer: key}
	o.expect(onA, http.MethodPost, "/domains", map[string]any{"name": "acme.example"}, http.StatusCreated)
	domain := o.first(onA, "/domains")
	o.expect(onA, http.MethodPost, "/domains/"+domain+"/verify", nil, http.StatusOK)
	eventually(t, 20*time.Second, "the domain is verified", func() bool {
		a, err := onA.ask(t.Context(), http.MethodGet, "/domains/"+domain, nil)
		return err == nil && strings.Contains(a.text, `"status":"verified"`)
	})
	mcp := map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
	email := map[string]any{"from": "a@acme.example", "to": "b@example.net", "subject": "s", "text": "t"}

	get := func(by caller, path string, before, after int) look {
		return look{by, http.MethodGet, path, nil, before, after}
	}
	for _, how := range hows {
		t.Run(how, func(t *testing.T) {
			_, leaving := o.joins("revoked-"+how+"@acme.example", "admin")
			revoked := o.first(onA, "/oauth/grants")
			lowJar, lowered := o.joins("lowered-"+how+"@acme.example", "admin")
			offJar, disabled := o.joins("disabled-"+how+"@acme.example", "admin")
			var members struct {
				Data []struct {
					ID, Email string
					UserID    string `json:"user_id"`
				}
			}
			if err := json.Unmarshal([]byte(o.expect(onA, http.MethodGet, "/team/members?limit=100", nil,
				http.StatusOK).text), &members); err != nil {
				t.Fatal(err)
			}
			loweredID := ""
			for _, m := range members.Data {
				if m.Email == "lowered-"+how+"@acme.example" {
					loweredID = m.ID + m.UserID
				}
			}
			other := o.jar()
			o.expect(caller{addr: o.a.addr, jar: other}, http.MethodPost, "/sign-in", url.Values{
				"email": {"ada@acme.example"}, "password": {password}}, http.StatusSeeOther)
			deleted := o.command("keys", "create", "--create-team", "--team", "Acme", "--name", "Deleted")
			deletedID := o.first(onA, "/api-keys")
			o.command("teams", "limit", "Acme", "--daily", "1000")
			people := func(jar http.CookieJar) caller { return caller{addr: o.b.addr, jar: jar} }
			changes := []struct {
				what  string
				act   func()
				looks []look
			}{
				{"a grant is revoked", func() {
					o.expect(onA, http.MethodDelete, "/oauth/grants/"+revoked, nil, http.StatusOK)
				}, []look{get(leaving, "/domains", 200, 401), {leaving, http.MethodPost, "/mcp", mcp, 200, 401}}},
				{"a key is deleted", func() {
					o.expect(onA, http.MethodDelete, "/api-keys/"+deletedID, nil, http.StatusOK)
				}, []look{get(caller{addr: o.b.addr, bearer: deleted}, "/domains", 200, 401),
					{caller{addr: o.b.addr, bearer: deleted}, http.MethodPost, "/mcp", mcp, 200, 401}}},
				{"a role is lowered", func() {
					o.expect(onA, http.MethodPatch, "/team/members/"+loweredID, map[string]any{"role": "viewer"},
						http.StatusOK)
				}, []look{{lowered, http.MethodPost, "/domains/none/verify", nil, 422, 403},
					{people(lowJar), http.MethodPost, "/app/people/invite", url.Values{"team": {o.teamID()}}, 422, 403}}},
				{"a user is disabled", func() {
					o.command("users", "disable", "disabled-"+how+"@acme.example")
				}, []look{get(disabled, "/domains", 200, 401), get(people(offJar), "/app/people", 200, 303),
					{disabled, http.MethodPost, "/mcp", mcp, 200, 401}}},
				{"sessions are ended", func() {
					o.expect(caller{addr: o.a.addr, jar: o.owner}, http.MethodPost, "/app/account/sessions/end",
						url.Values{}, http.StatusSeeOther)
				}, []look{get(people(other), "/app/people", 200, 303)}},
				{"a quota is lowered", func() { o.command("teams", "limit", "Acme", "--daily", "1") },
					[]look{{onB, http.MethodPost, "/emails", email, 200, 429}}},
			}
			for _, c := range changes {
				for _, l := range c.looks { // fill the node's caches
					if a, err := l.ask(t); err != nil || a.status != l.before {
						t.Errorf("before %s, %s %s is answered with %d %v: %s", c.what, l.method, l.path, a.status, err,
							a.text)
					}
				}
			}
			// Cache entries are valid for up to five seconds, so an earlier refusal proves that the notification
			// arrived.
			limit := 3 * time.Second
			if how == "cut" {
				o.link.Cut()
				limit = 15 * time.Second
			}
			for _, c := range changes {
				c.act()
			}
			began := time.Now()
			for _, c := range changes {
				for _, l := range c.looks {
					eventually(t, limit, c.what+", and "+l.path+" is refused", func() bool {
						a, err := l.ask(t)
						return err == nil && a.status == l.after
					})
				}
				t.Logf("%s: refused within %v", c.what, time.Since(began).Round(time.Millisecond))
			}
			o.command("teams", "limit", "Acme", "--daily", "1000")
		})
	}
}
