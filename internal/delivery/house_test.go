package delivery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	from        = "sender.dev" // the sending domain
	destination = "example.net"
)

// house has all that delivery depends on; only the DNS is fake.
type house struct {
	t            testing.TB
	db           *db.DB
	queue        *jobs.Queue
	domains      *domains.Service
	emails       *emails.Service
	suppressions *suppressions.Service
	service      *Service
	domain       domains.Domain
	people       *teams.Service
	by           teams.Actor
	runner       *jobs.Runner

	quiet bool // only counts events
	// compares what events say of their email with what the database has.
	compares bool
	mu       sync.Mutex
	seen     []events.Event
	total    map[events.Type]int
	news     chan struct{} // closed and replaced when events are on disk
}

// Recorded implements events.Listener.
func (h *house) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	all = slices.Clone(all)
	if h.compares {
		for i := range all {
			h.checkEmail(ctx, tx, &all[i])
		}
	}
	tx.AfterCommit(func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, e := range all {
			h.total[e.Type]++
		}
		if !h.quiet {
			h.seen = append(h.seen, all...)
		}
		close(h.news)
		h.news = make(chan struct{})
	})
	return nil
}

// checkEmail fails the test when an event of a delivery does not say of its email what the database has.
func (h *house) checkEmail(ctx context.Context, tx *db.Tx, e *events.Event) {
	if e.EmailID == "" {
		return
	}
	if e.Email == nil {
		h.t.Errorf("an event %s says nothing of its email, which was loaded", e.Type)
		return
	}
	said, err := e.Email()
	stored, err2 := emails.Brief(ctx, tx.Reader, e.TeamID, e.EmailID)
	if err := errors.Join(err, err2); err != nil {
		h.t.Errorf("read the email of an event %s: %v", e.Type, err)
	} else if diff := cmp.Diff(stored, said); diff != "" {
		h.t.Errorf("an event %s says of its email: %s", e.Type, diff)
	}
}

// newHouse builds everything and starts nothing.
func newHouse(t testing.TB, d *db.DB, c Config, dns resolve.Resolver) *house {
	t.Helper()
	ctx := t.Context()
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	h := &house{t: t, db: d, queue: jobs.NewQueue(d), news: make(chan struct{}), total: map[events.Type]int{}}
	keys, recorder := testKeys(t, 1), &events.Recorder{}
	blobs, err := blob.Open(ctx, "mem://")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { blobs.Close() })
	h.domains = domains.New(domains.Config{TrustDomains: true, Selector: "rsa", SelectorEd25519: "ed",
		SandboxDomains: c.SandboxDomains},
		d, h.queue, recorder, keys, dns, log)
	h.people = teams.New(d, log, h.domains.Exists)
	h.suppressions = suppressions.New(d, recorder)
	h.emails = emails.New(emails.Config{MaxSize: 40 << 20}, emails.Parts{DB: d, Queue: h.queue, Recorder: recorder,
		Blobs: blobs, Keys: keys,
		Guard: netguard.New(netguard.Options{}), Domains: h.domains, Suppressions: h.suppressions, Teams: h.people})
	recorder.Listen(h.emails)
	recorder.Listen(h.suppressions)
	recorder.Listen(h)
	if c.Hostname == "" {
		c.Hostname = "out.postrider.test"
	}
	if c.Transport == "" {
		c.Transport = Direct
	}
	c.AllowPrivate = true
	h.service = New(c, Parts{DB: d, Queue: h.queue, Recorder: recorder, Emails: h.emails, Domains: h.domains, Keys: keys,
		DNS: dns, Blobs: blobs, Log: log})
	h.service.hosts.silent = 0
	team, err := h.people.Create(ctx, "Team", "owner@sender.dev")
	if err != nil {
		t.Fatal(err)
	}
	h.by = teams.Actor{Kind: teams.KeyActor, ID: "key", TeamID: team.ID}
	if h.domain, err = h.domains.AddVerified(ctx, team.ID, domains.NewDomain{Name: from,
		TLS: domains.Opportunistic}); err != nil {
		t.Fatal(err)
	}
	h.runner = jobs.NewRunner(d, h.queue, log, time.Second)
	h.runner.Handle(h.service.Kind())
	return h
}

// run works jobs until the test ends.
func (h *house) run() *house {
	ctx, cancel := context.WithCancel(h.t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := h.runner.Run(ctx); err != nil {
			h.t.Errorf("runner: %v", err)
		}
	})
	wg.Go(func() { h.service.Run(ctx) })
	wg.Go(func() { h.db.Run(ctx) })
	h.t.Cleanup(func() {
		cancel()
		wg.Wait()
		h.service.pool.prune(time.Now().Add(time.Hour))
	})
	return h
}

// send accepts an email to some addresses and returns its id.
func (h *house) send(to ...string) string {
	h.t.Helper()
	html := "<p>Hello</p>"
	return h.accept(emails.Send{From: "Sender <hello@" + from + ">", To: to, Subject: "Hello", HTML: &html})
}

// another is another team, with a sending domain of its own.
func (h *house) another(domain string) teams.Actor {
	h.t.Helper()
	team, err := h.people.Create(h.t.Context(), domain, "owner@"+domain)
	if err != nil {
		h.t.Fatal(err)
	}
	if _, err := h.domains.AddVerified(h.t.Context(), team.ID, domains.NewDomain{Name: domain,
		TLS: domains.Opportunistic}); err != nil {
		h.t.Fatal(err)
	}
	return teams.Actor{Kind: teams.KeyActor, ID: "key", TeamID: team.ID}
}

// flood accepts emails of another team, n in all, to addresses that to names.
func (h *house) flood(by teams.Actor, sender string, n int, to func(i int) string) {
	h.t.Helper()
	text := "Hello"
	for i := 0; i < n; i += emails.MaxBatch {
		var batch []emails.Send
		for k := i; k < min(i+emails.MaxBatch, n); k++ {
			batch = append(batch, emails.Send{From: "a@" + sender, To: []string{to(k)}, Subject: "Hello", Text: &text})
		}
		if _, err := h.emails.SendBatch(h.t.Context(), by, batch, false, emails.Idempotency{}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func (h *house) accept(e emails.Send) string {
	h.t.Helper()
	emailID, err := h.emails.Send(h.t.Context(), h.by, e, emails.Idempotency{})
	if err != nil {
		h.t.Fatalf("send: %v", err)
	}
	return emailID
}

// wait returns what happened to an email as "delivered to@example.net", once there is an event of each type that is
// asked for. It fails the test after half a minute.
func (h *house) wait(emailID string, types ...events.Type) []string {
	h.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		h.mu.Lock()
		var all []string
		missing := slices.Clone(types)
		for _, e := range h.seen {
			if e.EmailID != emailID || e.Type == events.EmailQueued {
				continue
			}
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "email.")+" "+e.Recipient, " "))
			if i := slices.Index(missing, e.Type); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			}
		}
		news := h.news
		h.mu.Unlock()
		if len(missing) == 0 {
			return all
		}
		select {
		case <-news:
		case <-deadline:
			h.t.Fatalf("after half a minute %q happened, and not %q; attempts: %+v", all, missing, h.attempts(emailID))
		}
	}
}

// await waits until a type of event was recorded so often. It fails the test after a minute.
func (h *house) await(kind events.Type, n int) {
	h.t.Helper()
	deadline := time.After(time.Minute)
	for {
		h.mu.Lock()
		news, now := h.news, h.total[kind]
		h.mu.Unlock()
		if now >= n {
			return
		}
		select {
		case <-news:
		case <-deadline:
			h.t.Fatalf("after a minute %d of %d are %s", now, n, kind)
		}
	}
}

// count is how often a type of event was recorded.
func (h *house) count(kind events.Type) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.total[kind]
}

// event returns the first event of a type.
func (h *house) event(emailID string, kind events.Type) events.Event {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.seen {
		if e.EmailID == emailID && e.Type == kind {
			return e
		}
	}
	h.t.Fatalf("no event %s", kind)
	return events.Event{}
}

func (h *house) bounce(emailID string) *events.Bounce {
	h.t.Helper()
	return h.event(emailID, events.EmailBounced).Data.(*events.Bounce)
}

func (h *house) attempts(emailID string) []emails.Attempt {
	h.t.Helper()
	all, err := h.emails.Attempts(context.WithoutCancel(h.t.Context()), h.by.TeamID, emailID)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

func (h *house) state(emailID string) emails.State {
	h.t.Helper()
	e, err := h.emails.Get(h.t.Context(), h.by.TeamID, emailID)
	if err != nil {
		h.t.Fatal(err)
	}
	return e.LastEvent
}

// jobsLeft is how many deliveries wait.
func (h *house) jobsLeft() (n int) {
	h.t.Helper()
	if err := h.db.QueryRow(h.t.Context(), `SELECT COUNT(*) FROM jobs WHERE kind = $1`,
		emails.DeliveryKind).Scan(&n); err != nil {
		h.t.Fatal(err)
	}
	return n
}

// network leads names to servers on this machine: each gets an address of its own, which dial turns into the real one.
type network struct {
	dns   resolve.Fake
	hosts map[string]string // address with port 25 -> real address
	mu    sync.Mutex
	calls []string // names dialled, in order
	names map[string]string
}

func newNetwork() *network {
	return &network{dns: resolve.Fake{MXRecords: map[string][]resolve.MX{}, AddrRecords: map[string][]netip.Addr{}},
		hosts: map[string]string{}, names: map[string]string{}}
}

// host adds a mail host of a domain; an empty addr is one that cannot be reached.
func (n *network) host(domain, name string, pref uint16, addr string) {
	ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(len(n.names) + 1)})
	n.dns.MXRecords[domain] = append(n.dns.MXRecords[domain], resolve.MX{Host: name, Pref: pref})
	n.dns.AddrRecords[name] = append(n.dns.AddrRecords[name], ip)
	key := netip.AddrPortFrom(ip, 25).String()
	n.hosts[key] = addr
	n.names[key] = name
}

func (n *network) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.mu.Lock()
	n.calls = append(n.calls, n.names[addr])
	real := n.hosts[addr]
	n.mu.Unlock()
	if real == "" {
		return nil, &net.OpError{Op: "dial", Net: network, Err: io.ErrUnexpectedEOF}
	}
	return new(net.Dialer).DialContext(ctx, network, real)
}

func (n *network) dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.calls)
}

// one is a network whose destination has one host, mx.test.
func one(addr string) *network {
	n := newNetwork()
	n.host(destination, "mx.test", 10, addr)
	return n
}

// config is a configuration for a network, with tries that follow each other at once.
func (n *network) config(tries int) Config {
	return Config{Dial: n.dial, Schedule: slices.Repeat([]time.Duration{time.Millisecond}, tries), LaneConnections: 2,
		Signers: 2}
}

func address(i int) string { return "to" + strconv.Itoa(i) + "@" + destination }

func testKeys(t testing.TB, seed byte) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(bytes.Repeat([]byte{seed}, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}
