package links_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/front/links"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// site is an http.Handler that serves a test node's API and links. The team Acme also receives email at
// in.acme.example, and the team Other receives email at other.example.
type site struct {
	*testnode.Node
	api      *api.API
	links    *http.ServeMux
	received *receiving.Service
	folder   string // folder of the blob store
	log      *testnode.Logged
	team     map[string]string // ids of teams, by the names "acme" and "other"
	token    map[string]string // API keys, by the names "acme", "sending" and "other"
}

// newSite returns a site. It uses only the limits in c.
func newSite(t testing.TB, d *db.DB, c receiving.Config) *site {
	t.Helper()
	s := &site{links: http.NewServeMux(), log: &testnode.Logged{}, folder: filepath.Join(t.TempDir(), "blobs")}
	s.Node = testnode.New(t, d, testnode.Options{MaxSize: 10 << 20, Blobs: s.folder,
		Log: slog.New(slog.NewTextHandler(s.log, nil))})
	c.Hostname, c.Hosts, c.PublicURL = "mx.postrider.test", []string{"mx.postrider.test"}, testnode.PublicURL
	s.received = testnode.Must(receiving.New(c, receiving.Deps{DB: d, Quotas: s.Quotas, Recorder: s.Recorder,
		Blobs: s.Blobs, Keys: s.Keys, Domains: s.Domains, Emails: s.Emails, Teams: s.Teams, Log: s.Log}))
	s.api = api.New(api.Options{Services: api.Services{Audit: s.Audit, Teams: s.Teams, Domains: s.Domains,
		Suppressions: s.Suppressions, Emails: s.Emails, Quotas: s.Quotas, Receiving: s.received}, Log: s.Log})
	links.New(s.Emails, s.received, s.Log).Register(s.links)

	_, sending := s.Key(s.Acme.TeamID, teams.NewKey{Name: "sending", Permission: teams.SendingAccess})
	s.token = map[string]string{"acme": s.Token, "sending": sending, "other": s.OtherToken}
	s.team = map[string]string{"acme": s.Acme.TeamID, "other": s.Other.TeamID}
	receives := true
	for team, domain := range map[string]string{"acme": "in.acme.example", "other": "other.example"} {
		s.Verified(s.team[team], domains.NewDomain{Name: domain,
			Capabilities: domains.Capabilities{Receiving: &receives}})
	}
	return s
}

func (s *site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/download/") || r.URL.Path == "/shared" {
		s.links.ServeHTTP(w, r)
		return
	}
	s.api.ServeHTTP(w, r)
}

// request returns a request for a line such as "GET /path", or for an absolute URL on the site. The parameter key is
// the name of an API key, or "" for a request without a key.
func (s *site) request(t testing.TB, key, line, body string) *http.Request {
	method, path, found := strings.Cut(line, " ")
	if !found {
		method, path = http.MethodGet, line
	}
	path = strings.TrimPrefix(path, testnode.PublicURL)
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+s.token[key])
	}
	return r
}

func (s *site) do(t testing.TB, key, line, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	s.ServeHTTP(w, s.request(t, key, line, body))
	return w
}

// get requests a link, checks the status, and returns the body.
func (s *site) get(t testing.TB, link string, status int) string {
	t.Helper()
	w := s.do(t, "", link, "")
	if w.Code != status {
		t.Errorf("%.60s: %d %.200s, want %d", link, w.Code, w.Body, status)
	}
	return w.Body.String()
}

// receive delivers a message with LF line endings to an address and returns the id of the received email.
func (s *site) receive(t testing.TB, to, message string) string {
	t.Helper()
	c, err := s.received.Open(t.Context(), smtpserver.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:25"),
		Hello: "x.example"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Mail(t.Context(), "jo@sender.example", smtpserver.MailOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.Rcpt(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	id, err := c.Data(t.Context(), strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// share creates a shared link to an email through the API and returns the link.
func (s *site) share(t testing.TB, key, id, body string) string {
	t.Helper()
	w := s.do(t, key, "POST /emails/"+id+"/share", body)
	var out struct{ Object, ID, URL string }
	err := json.Unmarshal(w.Body.Bytes(), &out, json.MatchCaseInsensitiveNames(true))
	ours := strings.HasPrefix(out.URL, testnode.PublicURL+"/shared?token=")
	if err != nil || w.Code != 200 || out.Object != "email" || out.ID != id || !ours {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	return out.URL
}

// send sends an email from the team Acme and returns the email's id.
func (s *site) send(t testing.TB, body string) string {
	t.Helper()
	w := s.do(t, "acme", "POST /emails", body)
	var out struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || w.Code != 200 {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	return out.ID
}

func readAll(t testing.TB, d receiving.Download) string {
	t.Helper()
	defer d.Body.Close()
	b, err := io.ReadAll(d.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
