package dashboard_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// board is a running node that captures emails, with two teams.
type board struct {
	*node.Node
	t     *testing.T
	url   string
	acme  teams.Actor // the actor of the key of the team Acme, which has the verified domain acme.example
	key   string      // that key
	other teams.Actor // the actor of the key of the team Other

	visitors int
}

// each runs a test on a node with each database.
func each(t *testing.T, f func(t *testing.T, b *board)) {
	t.Helper()
	for _, engine := range []string{"sqlite", "postgres"} {
		t.Run(engine, func(t *testing.T) {
			vars := map[string]string{"data_dir": t.TempDir()}
			if engine == "postgres" {
				vars["database_url"] = dbtest.PostgresURL(t)
			} else {
				dbtest.WriteSQLite(t, filepath.Join(vars["data_dir"], "postrider.db"))
			}
			f(t, newBoard(t, vars))
		})
	}
}

func newBoard(t *testing.T, vars map[string]string) *board {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	public := "http://" + l.Addr().String()
	settings := map[string]string{"public_url": public, "http_listen": "127.0.0.1:0", "roles": "api,delivery,jobs",
		"transport": "capture", "trust_domains": "true", "hostname": "mail.postrider.test", "log_level": "error",
		"rate_limit": "1000", "allow_loopback": "true", "dns_zone": "dns.postrider.test",
		"dns_names":     "ns1.dns.postrider.test,ns2.dns.postrider.test",
		"dns_addresses": "ns1.dns.postrider.test=127.0.0.1,ns2.dns.postrider.test=127.0.0.2"}
	maps.Copy(settings, vars)
	c, err := config.Load(config.Source{Defaults: settings, Environ: func() []string { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Open(t.Context(), c, slog.New(slog.DiscardHandler), node.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n.Domains.GenerateRSA = dkimtest.RSA
	b := &board{Node: n, t: t, url: public}
	b.acme, b.key = b.team("Acme")
	b.other, _ = b.team("Other")
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx, l) }()
	t.Cleanup(sync.OnceFunc(func() {
		stop()
		if err := <-ended; err != nil {
			t.Errorf("the node ended with %v", err)
		}
		n.Close()
	}))
	domain := b.api("POST", "/domains", `{"name":"acme.example"}`)["id"].(string)
	b.api("POST", "/domains/"+domain+"/verify", "")
	b.eventually("the domain is verified", func() bool {
		return b.api("GET", "/domains/"+domain, "")["status"] == "verified"
	})
	return b
}

// team creates a team with a key of full access.
func (b *board) team(name string) (teams.Actor, string) {
	b.t.Helper()
	_, token, err := b.Teams.CreateKeyFor(b.t.Context(), name, "", teams.NewKey{Name: "production"})
	b.must(err)
	a, err := b.Teams.Authenticate(b.t.Context(), token)
	b.must(err)
	return a, token
}

func (b *board) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

// api makes a request with Acme's key and returns the response, which must be a success.
func (b *board) api(method, path, body string) map[string]any {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	b.must(err)
	r.Header.Set("Authorization", "Bearer "+b.key)
	r.Header.Set("Content-Type", "application/json")
	w, err := http.DefaultClient.Do(r)
	b.must(err)
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	b.must(err)
	out := map[string]any{}
	if w.StatusCode >= 300 || json.Unmarshal(text, &out) != nil {
		b.t.Fatalf("%s %s: %d %s", method, path, w.StatusCode, text)
	}
	return out
}

// send sends an email by the API and returns its id.
func (b *board) send(to, subject string) string {
	b.t.Helper()
	body, err := json.Marshal(map[string]any{"from": "Acme <billing@acme.example>", "to": to, "subject": subject,
		"html": "<h1>Invoice</h1><script>alert(1)</script>",
		"tags": []map[string]string{{"name": "type", "value": "invoice"}}})
	b.must(err)
	return b.api("POST", "/emails", string(body))["id"].(string)
}

// eventually calls f until it returns true, for at most 20 seconds.
func (b *board) eventually(what string, f func() bool) {
	b.t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// visitor is a simulated browser of a signed-in user.
type visitor struct {
	*board
	c      *http.Client
	user   users.User
	teamID string
}

// visitor signs in as a new user with a role in the team Acme.
func (b *board) visitor(role teams.Role) *visitor { return b.visitorOf(b.acme.TeamID, role) }

func (b *board) visitorOf(teamID string, role teams.Role) *visitor {
	b.t.Helper()
	b.visitors++
	u, err := b.Users.Create(b.t.Context(), users.NewUser{Email: fmt.Sprintf("laura%d@example.org", b.visitors),
		Name: "Laura Meyer"})
	b.must(err)
	b.must(b.DB.Update(b.t.Context(), func(tx *db.Tx) error {
		return b.Members.AddIn(b.t.Context(), tx, teamID, u.ID, role)
	}))
	var token string
	b.must(b.DB.Update(b.t.Context(), func(tx *db.Tx) (err error) {
		token, err = b.Users.StartIn(b.t.Context(), tx, u, "test", users.Client{Address: "192.0.2.1"})
		return err
	}))
	jar, err := cookiejar.New(nil)
	b.must(err)
	at, err := url.Parse(b.url)
	b.must(err)
	jar.SetCookies(at, []*http.Cookie{{Name: "postrider", Value: token, Path: "/"}})
	return &visitor{board: b, c: &http.Client{Jar: jar}, user: u, teamID: teamID}
}

// get opens a page and returns the status and the page, after redirects.
func (v *visitor) get(path string) (int, string) { return v.do("GET", path, nil) }

// post submits a form of the visitor's team.
func (v *visitor) post(path string, form url.Values) (int, string) {
	if form == nil {
		form = url.Values{}
	}
	if !form.Has("team") {
		form.Set("team", v.teamID)
	}
	return v.do("POST", path, form)
}

// do makes a request, and repeats it as long as the user requests too many pages in a second.
func (v *visitor) do(method, path string, form url.Values) (status int, page string) {
	v.t.Helper()
	at := v.url + path
	v.eventually("the user may request another page", func() bool {
		var last *http.Request
		var wait string
		status, page, wait, last = v.once(method, at, form)
		if status != http.StatusTooManyRequests || wait == "" {
			return true
		}
		if last.Method == http.MethodGet { // the page to which a form that has succeeded redirects
			method, at, form = last.Method, last.URL.String(), nil
		}
		return false
	})
	return status, page
}

// once makes a request, follows redirects, and returns the last response and its request.
func (v *visitor) once(method, at string, form url.Values) (status int, page, retryAfter string, last *http.Request) {
	v.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(v.t.Context(), method, at, body)
	v.must(err)
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	r.Header.Set("Accept", "text/html")
	w, err := v.c.Do(r)
	v.must(err)
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	v.must(err)
	return w.StatusCode, string(text), w.Header.Get("Retry-After"), w.Request
}

// shows checks that a page has the status and the texts.
func (v *visitor) shows(path string, status int, texts ...string) string {
	v.t.Helper()
	got, page := v.get(path)
	if got != status {
		v.t.Errorf("GET %s: %d, want %d\n%s", path, got, status, page)
	}
	for _, text := range texts {
		if !strings.Contains(page, text) {
			v.t.Errorf("GET %s lacks %q\n%s", path, text, page)
		}
	}
	return page
}
