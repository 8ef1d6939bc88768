package webhooks_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is the webhooks service on a node with one team.
type fixture struct {
	*testnode.Node
	*webhooks.Service

	mu      sync.Mutex
	notices []string
}

// config returns the configuration that most tests use: the default schedule, with local endpoints allowed.
func config() webhooks.Config {
	return webhooks.Config{Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
		5 * time.Hour,
		10 * time.Hour, 10 * time.Hour}, DisableAfter: 5 * 24 * time.Hour, AllowHTTP: true,
		UserAgent: "Postrider-Webhooks/test"}
}

func newFixture(t testing.TB, d *db.DB, c webhooks.Config, guard netguard.Options) *fixture {
	t.Helper()
	f := start(t, d, c, guard)
	f.Acme, _ = f.Team("Acme")
	return f
}

// start is like newFixture, but uses a database that already contains the fixture's team.
func start(t testing.TB, d *db.DB, c webhooks.Config, guard netguard.Options) *fixture {
	t.Helper()
	n := testnode.Bare(t, d, testnode.Options{MaxSize: 40 << 20, Guard: guard})
	f := &fixture{Node: n}
	f.Service = testnode.Must(webhooks.New(c, webhooks.Deps{DB: d, Queue: n.Queue, Keys: n.Keys, Guard: n.Guard,
		Domains: n.Domains, Log: n.Log, Notify: func(_ context.Context, _ *db.Tx, _, subject, text string) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.notices = append(f.notices, subject+"\n"+text)
			return nil
		}}))
	n.Recorder.Listen(f.Service)
	return f
}

// again returns another fixture on the same database, as after a restart.
func (f *fixture) again(t testing.TB, c webhooks.Config, guard netguard.Options) *fixture {
	t.Helper()
	fresh := start(t, f.DB, c, guard)
	fresh.Acme = f.Acme
	return fresh
}

// loopback returns a running fixture that may call receivers on loopback addresses.
func loopback(t testing.TB, d *db.DB) *fixture {
	f := newFixture(t, d, config(), loopbackOnly)
	f.run()
	return f
}

// run handles jobs of the given kinds until the test ends; without arguments, run handles all kinds.
func (f *fixture) run(kinds ...string) (stop func()) {
	all := f.Kinds()
	if len(kinds) > 0 {
		all = slices.DeleteFunc(all, func(k jobs.Kind) bool { return !slices.Contains(kinds, k.Name) })
	}
	return f.Run(all...)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// request is a request that reached the test receiver.
type request struct {
	head       http.Header
	path, from string
	body       string
	at         time.Time
}

func (r request) id() string { return r.head.Get("Svix-Id") }

// receiver answers webhook requests and stores them.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []request
}

// receive starts a test receiver. The function answer writes the response to the nth request, counted from 0; nil means
// status 200 for all requests.
func receive(t testing.TB, answer func(n int, w http.ResponseWriter, r *http.Request)) *receiver {
	t.Helper()
	x := &receiver{}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		x.mu.Lock()
		n := len(x.got)
		x.got = append(x.got, request{r.Header, r.URL.Path, r.RemoteAddr, string(body), time.Now()})
		x.mu.Unlock()
		if answer != nil {
			answer(n, w, r)
		}
	}))
	t.Cleanup(x.Close)
	return x
}

func (x *receiver) all() []request {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]request(nil), x.got...)
}

// endpoint adds an endpoint that selects all event types.
func (f *fixture) endpoint(t testing.TB, url string) webhooks.Endpoint {
	t.Helper()
	var names []string
	for _, k := range webhooks.Types() {
		names = append(names, string(k))
	}
	e, err := f.Create(t.Context(), f.Acme.TeamID, url, names)
	must(t, err)
	return e
}

// happen records events.
func (f *fixture) happen(t testing.TB, all ...events.Event) {
	t.Helper()
	for i := range all {
		all[i].TeamID = f.Acme.TeamID
	}
	f.Happen(all...)
}

// suppress suppresses an address, which records a simple event.
func (f *fixture) suppress(t testing.TB, address string) {
	t.Helper()
	_, err := f.Suppressions.Add(t.Context(), f.Acme.TeamID, []string{address})
	must(t, err)
}

func (f *fixture) unsuppress(t testing.TB, address string) {
	t.Helper()
	_, err := f.Suppressions.Remove(t.Context(), f.Acme.TeamID, address)
	must(t, err)
}

// messages returns an endpoint's messages, newest first.
func (f *fixture) messages(t testing.TB, e webhooks.Endpoint) []webhooks.Message {
	t.Helper()
	all, _, err := f.Messages(t.Context(), f.Acme.TeamID, e.ID, "", page.Page{Limit: 100})
	must(t, err)
	return all
}

// becomes waits until an endpoint's newest message has the given state.
func (f *fixture) becomes(t testing.TB, e webhooks.Endpoint, state webhooks.State) webhooks.Message {
	t.Helper()
	var m webhooks.Message
	testnode.Until(t, "the message becomes "+string(state), func() bool {
		all := f.messages(t, e)
		if len(all) > 0 {
			m = all[0]
		}
		return m.State == state
	})
	return m
}

func (f *fixture) attempts(t testing.TB, e webhooks.Endpoint, m webhooks.Message) []webhooks.Attempt {
	t.Helper()
	all, _, err := f.Attempts(t.Context(), f.Acme.TeamID, e.ID, m.ID, page.Page{Limit: 100})
	must(t, err)
	return all
}

// send accepts an email that has all fields that webhook payloads contain.
func (f *fixture) send(t testing.TB, to ...string) string {
	t.Helper()
	f.Verified(f.Acme.TeamID, domains.NewDomain{Name: testnode.Domain})
	html := "<p>Hello</p>"
	return f.Send(emails.Send{From: "Acme <hello@acme.example>", To: to, Subject: "Your order <&>", HTML: &html,
		Tags: []emails.Tag{{Name: "kind", Value: "receipt"}}, Headers: []message.Field{{Name: "X-Order", Value: "77"}}})
}

var (
	noLoopback   = netguard.Options{}
	loopbackOnly = netguard.Options{AllowLoopback: true}
)
