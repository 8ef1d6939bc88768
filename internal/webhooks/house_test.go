package webhooks_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
	"github.com/postrider/postrider/internal/webhooks"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// house is webhooks among the true parts that they stand with.
type house struct {
	*webhooks.Service
	d          *db.DB
	recorder   *events.Recorder
	queue      *jobs.Queue
	suppressed *suppressions.Service
	domains    *domains.Service
	emails     *emails.Service
	who        teams.Actor

	mu      sync.Mutex
	notices []string
}

// config is what most tests run with: the default schedule, and endpoints on this machine.
func config() webhooks.Config {
	return webhooks.Config{Schedule: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
		5 * time.Hour,
		10 * time.Hour, 10 * time.Hour}, DisableAfter: 5 * 24 * time.Hour, Retention: 30 * 24 * time.Hour, AllowHTTP: true,
		UserAgent: "Postrider-Webhooks/test"}
}

func newHouse(t testing.TB, d *db.DB, c webhooks.Config, guard netguard.Options) *house {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	secrets, err := keyring.New(make([]byte, 32))
	must(t, err)
	blobs, err := blob.Open(context.Background(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { blobs.Close() })
	h := &house{d: d, recorder: &events.Recorder{}, queue: jobs.NewQueue(d)}
	g := netguard.New(guard)
	region := domains.Region{BounceHost: "bounces.postrider.test", InboundHost: "inbound.postrider.test",
		SPFInclude: "spf.postrider.test", TrackingHost: "links.postrider.test"}
	h.domains = domains.New(domains.Config{Default: region, Selector: "postrider", SelectorEd25519: "postrider-ed",
		TrustDomains: true},
		d, h.queue, h.recorder, secrets, resolve.Fake{}, quiet)
	people := teams.New(d, quiet, h.domains.Exists)
	h.suppressed = suppressions.New(d, h.recorder)
	h.emails = emails.New(emails.Config{MaxSize: 40 << 20, PublicURL: "https://postrider.test"},
		emails.Parts{DB: d, Queue: h.queue,
			Recorder: h.recorder, Blobs: blobs, Keys: secrets, Guard: g, Domains: h.domains, Suppressions: h.suppressed,
			Teams: people})
	h.Service = webhooks.New(c, webhooks.Parts{DB: d, Queue: h.queue, Keys: secrets, Guard: g, Domains: h.domains,
		Log: quiet,
		Notify: func(_ context.Context, _ *db.Tx, teamID, subject, text string) error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.notices = append(h.notices, subject+"\n"+text)
			return nil
		}})
	h.recorder.Listen(h.emails)
	h.recorder.Listen(h.suppressed)
	h.recorder.Listen(h.Service)
	team, err := people.Create(context.Background(), "team", "")
	must(t, err)
	_, token, err := people.CreateKey(context.Background(), teams.System(team.ID), teams.NewKey{Name: "key"})
	must(t, err)
	h.who, err = people.Authenticate(context.Background(), token)
	must(t, err)
	return h
}

// again is the same house with another configuration of webhooks, as after a restart.
func (h *house) again(t testing.TB, c webhooks.Config) *house {
	t.Helper()
	fresh := newHouse(t, h.d, c, loopbackOnly)
	fresh.who = h.who
	return fresh
}

// loopback is a house that may call receivers on this machine, at work.
func loopback(t testing.TB, d *db.DB) *house {
	h := newHouse(t, d, config(), netguard.Options{AllowLoopback: true})
	h.run(t)
	return h
}

// run works until the test ends: jobs of all kinds, or of those that are named.
func (h *house) run(t testing.TB, kinds ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	r := jobs.NewRunner(h.d, h.queue, slog.New(slog.DiscardHandler), 2*time.Second)
	for _, k := range h.Kinds() {
		if len(kinds) == 0 || slices.Contains(kinds, k.Name) {
			r.Handle(k)
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// request is what a receiver was sent.
type request struct {
	head       http.Header
	path, from string
	body       string
	at         time.Time
}

func (r request) id() string { return r.head.Get("Svix-Id") }

// receiver answers webhooks and remembers them.
type receiver struct {
	*httptest.Server
	mu  sync.Mutex
	got []request
}

// receive starts a receiver; answer writes what it answers to the nth request, from 0. Nil answers 200.
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

// until waits for a condition that comes about by itself.
func until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(90 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// endpoint adds an endpoint for events of all types.
func (h *house) endpoint(t testing.TB, url string) webhooks.Endpoint {
	t.Helper()
	var names []string
	for _, k := range webhooks.Types() {
		names = append(names, string(k))
	}
	e, err := h.Create(t.Context(), h.who.TeamID, url, names)
	must(t, err)
	return e
}

// happen records events.
func (h *house) happen(t testing.TB, all ...events.Event) {
	t.Helper()
	for i := range all {
		all[i].TeamID = h.who.TeamID
	}
	must(t, h.d.Update(t.Context(), func(tx *db.Tx) error { return h.recorder.Record(t.Context(), tx, all...) }))
}

// suppress makes an event of the simplest kind.
func (h *house) suppress(t testing.TB, address string) {
	t.Helper()
	_, err := h.suppressed.Add(t.Context(), h.who.TeamID, []string{address})
	must(t, err)
}

func (h *house) unsuppress(t testing.TB, address string) {
	t.Helper()
	_, err := h.suppressed.Remove(t.Context(), h.who.TeamID, address)
	must(t, err)
}

// messages are those of an endpoint, newest first.
func (h *house) messages(t testing.TB, e webhooks.Endpoint) []webhooks.Message {
	t.Helper()
	all, _, err := h.Messages(t.Context(), h.who.TeamID, e.ID, "", page.Page{Limit: 100})
	must(t, err)
	return all
}

// becomes waits until the newest message of an endpoint is in a state.
func (h *house) becomes(t testing.TB, e webhooks.Endpoint, state webhooks.State) webhooks.Message {
	t.Helper()
	var m webhooks.Message
	until(t, "the message becomes "+string(state), func() bool {
		all := h.messages(t, e)
		if len(all) > 0 {
			m = all[0]
		}
		return m.State == state
	})
	return m
}

func (h *house) attempts(t testing.TB, e webhooks.Endpoint, m webhooks.Message) []webhooks.Attempt {
	t.Helper()
	all, _, err := h.Attempts(t.Context(), h.who.TeamID, e.ID, m.ID, page.Page{Limit: 100})
	must(t, err)
	return all
}

// send accepts an email with all that webhooks show of one.
func (h *house) send(t testing.TB, to ...string) string {
	t.Helper()
	_, err := h.domains.AddVerified(t.Context(), h.who.TeamID, domains.NewDomain{Name: "acme.example"})
	must(t, err)
	html := "<p>Hello</p>"
	id, err := h.emails.Send(t.Context(), h.who, emails.Send{From: "Acme <hello@acme.example>", To: to,
		Subject: "Your order <&>", HTML: &html,
		Tags: []emails.Tag{{Name: "kind", Value: "receipt"}}, Headers: []message.Field{{Name: "X-Order", Value: "77"}}},
		emails.Idempotency{})
	must(t, err)
	return id
}

var (
	noLoopback   = netguard.Options{}
	loopbackOnly = netguard.Options{AllowLoopback: true}
)
