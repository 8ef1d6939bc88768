package links_test

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/api"
	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/links"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/receiving"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const publicURL = "http://mail.test"

// site is the API and the links over one database, with two teams: acme, which sends from acme.example and receives at
// in.acme.example, and other, which receives at other.example. It is a handler.
type site struct {
	api      *api.API
	links    *http.ServeMux
	received *receiving.Service
	emails   *emails.Service
	teams    *teams.Service
	queue    *jobs.Queue
	keys     *keyring.Keyring
	blobs    *blob.Store
	folder   string // of the blobs
	log      *logged
	team     map[string]string // acme, other -> id
	token    map[string]string // acme, sending, other -> API key
}

// logged are the lines of the log.
type logged struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// Take returns the lines since it was asked last.
func (l *logged) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// newSite builds it; of c the bounds count.
func newSite(t testing.TB, d *db.DB, c receiving.Config) *site {
	t.Helper()
	ctx := t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &site{links: http.NewServeMux(), log: &logged{}, folder: filepath.Join(t.TempDir(), "blobs"),
		queue: jobs.NewQueue(d), team: map[string]string{}, token: map[string]string{}}
	log := slog.New(slog.NewTextHandler(s.log, nil))
	var err error
	s.keys, err = keyring.New(make([]byte, 32))
	must(err)
	s.blobs, err = blob.Open(ctx, s.folder)
	must(err)
	recorder := &events.Recorder{}
	senders := domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true}, d,
		s.queue, recorder, s.keys, resolve.Fake{}, log)
	s.teams = teams.New(d, log, senders.Exists)
	suppressed := suppressions.New(d, recorder)
	s.emails = emails.New(emails.Config{MaxSize: 10 << 20, PublicURL: publicURL}, emails.Parts{DB: d, Queue: s.queue,
		Recorder: recorder, Blobs: s.blobs, Keys: s.keys, Guard: netguard.New(netguard.Options{}), Domains: senders,
		Suppressions: suppressed, Teams: s.teams})
	recorder.Listen(s.emails)
	recorder.Listen(suppressed)

	c.Hostname, c.Hosts, c.PublicURL = "mx.postrider.test", []string{"mx.postrider.test"}, publicURL
	s.received = receiving.New(c, receiving.Parts{DB: d, Recorder: recorder, Blobs: s.blobs, Keys: s.keys,
		Domains: senders,
		Emails:  s.emails, Teams: s.teams, Log: log})
	s.api = api.New(api.Options{Services: api.Services{Teams: s.teams, Domains: senders, Suppressions: suppressed,
		Emails: s.emails, Receiving: s.received}, Log: log})
	links.New(s.emails, s.received, log).Register(s.links)

	for _, name := range []string{"acme", "other"} {
		team, err := s.teams.Create(ctx, name, "")
		must(err)
		s.team[name] = team.ID
		_, s.token[name], err = s.teams.CreateKey(ctx, teams.System(team.ID), teams.NewKey{Name: name})
		must(err)
	}
	_, s.token["sending"], err = s.teams.CreateKey(ctx, teams.System(s.team["acme"]), teams.NewKey{Name: "sending",
		Permission: teams.SendingAccess})
	must(err)
	for name, team := range map[string]string{"acme.example": "acme", "in.acme.example": "acme",
		"other.example": "other"} {
		receives := name != "acme.example"
		_, err := senders.AddVerified(ctx, s.team[team], domains.NewDomain{Name: name,
			Capabilities: domains.Capabilities{Receiving: &receives}})
		must(err)
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

// request is "GET /path" or an absolute URL of the site, asked with the key of that name; "" is none.
func (s *site) request(t testing.TB, key, line, body string) *http.Request {
	method, path, found := strings.Cut(line, " ")
	if !found {
		method, path = http.MethodGet, line
	}
	r := httptest.NewRequestWithContext(t.Context(), method, strings.TrimPrefix(path, publicURL), strings.NewReader(body))
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

// get wants a status of a link, and returns what it shows.
func (s *site) get(t testing.TB, link string, status int) string {
	t.Helper()
	w := s.do(t, "", link, "")
	if w.Code != status {
		t.Errorf("%.60s: %d %.200s, want %d", link, w.Code, w.Body, status)
	}
	return w.Body.String()
}

// receive takes a message for an address and returns its id. Line ends are LF.
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

// share returns the shared link of an email, which the API is asked for.
func (s *site) share(t testing.TB, key, id, body string) string {
	t.Helper()
	w := s.do(t, key, "POST /emails/"+id+"/share", body)
	var out struct{ Object, ID, URL string }
	err := json.Unmarshal(w.Body.Bytes(), &out, json.MatchCaseInsensitiveNames(true))
	ours := strings.HasPrefix(out.URL, publicURL+"/shared?token=")
	if err != nil || w.Code != 200 || out.Object != "email" || out.ID != id || !ours {
		t.Fatalf("%d %s %v", w.Code, w.Body, err)
	}
	return out.URL
}

// send sends an email from acme and returns its id.
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
