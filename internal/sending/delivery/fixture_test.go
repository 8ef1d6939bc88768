package delivery

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/delivery/capture"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	from        = testnode.Domain // the sending domain
	destination = "example.net"
)

// fixture is a delivery service on a test node. The fixture receives events after the node's own listeners.
type fixture struct {
	*testnode.Node
	service *Service
	runner  *jobs.Runner

	quiet bool // only counts events
	// compares reports whether to compare the email data in events with the database.
	compares bool
	mu       sync.Mutex
	seen     []events.Event
	total    map[events.Type]int
	news     chan struct{} // closed and replaced whenever events are committed
}

// Recorded implements events.Listener.
func (f *fixture) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	all = slices.Clone(all)
	if f.compares {
		for i := range all {
			f.checkEmail(ctx, tx, &all[i])
		}
	}
	tx.AfterCommit(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, e := range all {
			f.total[e.Type]++
		}
		if !f.quiet {
			f.seen = append(f.seen, all...)
			// These functions of two commits in succession may run in another order.
			slices.SortStableFunc(f.seen, func(a, b events.Event) int { return strings.Compare(a.ID, b.ID) })
		}
		close(f.news)
		f.news = make(chan struct{})
	})
	return nil
}

// checkEmail fails the test if the email data in a delivery event differs from the database.
func (f *fixture) checkEmail(ctx context.Context, tx *db.Tx, e *events.Event) {
	if e.EmailID == "" {
		return
	}
	if e.Email == nil {
		f.T.Errorf("an event %s says nothing of its email, which was loaded", e.Type)
		return
	}
	said, err := e.Email()
	stored, err2 := emails.EventSummary(ctx, tx.Reader, e.TeamID, e.EmailID)
	if err := errors.Join(err, err2); err != nil {
		f.T.Errorf("read the email of an event %s: %v", e.Type, err)
	} else if diff := cmp.Diff(stored, said); diff != "" {
		f.T.Errorf("an event %s says of its email: %s", e.Type, diff)
	}
}

// newFixture creates a fixture without starting its runner or its service.
func newFixture(t testing.TB, d *db.DB, c Config, dns resolve.Resolver) *fixture {
	t.Helper()
	return newFixtureIn(t, d, c, dns, "mem://")
}

// newFixtureIn is like newFixture, with another store for blobs.
func newFixtureIn(t testing.TB, d *db.DB, c Config, dns resolve.Resolver, blobs string) *fixture {
	t.Helper()
	n := testnode.New(t, d, testnode.Options{MaxSize: 40 << 20, Blobs: blobs, FeedbackSender: "postridertest"})
	f := &fixture{Node: n, news: make(chan struct{}), total: map[events.Type]int{}}
	n.Recorder.Listen(f)
	if c.Hostname == "" {
		c.Hostname = "out.postrider.test"
	}
	if c.Transport == "" {
		c.Transport = Direct
	}
	c.AllowPrivate = true
	f.service = newService(c, Deps{DB: d, Queue: n.Queue, Recorder: n.Recorder, Emails: n.Emails, Domains: n.Domains,
		Keys: n.Keys, DNS: dns, Blobs: n.Blobs, Outbox: capture.New(n.Blobs, nil), Guard: n.Guard, Log: n.Log,
		OnLimitRaised: func(string) {}})
	f.service.hosts.backoffFirst = 0
	f.runner = jobs.NewRunner(d, n.Queue, n.Log, time.Second)
	f.runner.Handle(f.service.Kind())
	return f
}

// run runs the job runner and the delivery service until the test ends.
func (f *fixture) run() *fixture {
	ctx, cancel := context.WithCancel(f.T.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := f.runner.Run(ctx); err != nil {
			f.T.Errorf("runner: %v", err)
		}
	})
	wg.Go(func() { f.service.Run(ctx) })
	wg.Go(func() { f.DB.Run(ctx) })
	f.T.Cleanup(func() {
		cancel()
		wg.Wait()
		f.service.pool.prune(time.Now().Add(time.Hour))
	})
	return f
}

// send enqueues an email to the given addresses and returns its id.
func (f *fixture) send(to ...string) string {
	f.T.Helper()
	html := "<p>Hello</p>"
	return f.Send(emails.Send{From: "Sender <hello@" + from + ">", To: to, Subject: "Hello", HTML: &html})
}

// flood enqueues n emails from another team. The callback to returns the recipient's address for each email.
func (f *fixture) flood(by teams.Actor, sender string, n int, to func(i int) string) {
	f.T.Helper()
	text := "Hello"
	for i := 0; i < n; i += emails.MaxBatch {
		var batch []emails.Send
		for k := i; k < min(i+emails.MaxBatch, n); k++ {
			batch = append(batch, emails.Send{From: "a@" + sender, To: []string{to(k)}, Subject: "Hello", Text: &text})
		}
		if _, err := f.Emails.SendBatch(f.T.Context(), by, batch, false, emails.Idempotency{}); err != nil {
			f.T.Fatal(err)
		}
	}
}

// wait waits until an event of each given type has been recorded, and returns all events for the email, such as
// "delivered to@example.net". If an event is missing after half a minute, wait fails the test.
func (f *fixture) wait(emailID string, types ...events.Type) []string {
	f.T.Helper()
	deadline := time.After(30 * time.Second)
	for {
		f.mu.Lock()
		var all []string
		missing := slices.Clone(types)
		for _, e := range f.seen {
			if e.EmailID != emailID || e.Type == events.EmailQueued {
				continue
			}
			all = append(all, strings.TrimSuffix(strings.TrimPrefix(string(e.Type), "email.")+" "+e.Recipient, " "))
			if i := slices.Index(missing, e.Type); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			}
		}
		news := f.news
		f.mu.Unlock()
		if len(missing) == 0 {
			return all
		}
		select {
		case <-news:
		case <-deadline:
			f.T.Fatalf("after half a minute %q happened, and not %q; attempts: %+v", all, missing, f.attempts(emailID))
		}
	}
}

// await waits until n events of a type have been recorded; after a minute, it fails the test.
func (f *fixture) await(kind events.Type, n int) {
	f.T.Helper()
	deadline := time.After(time.Minute)
	for {
		f.mu.Lock()
		news, now := f.news, f.total[kind]
		f.mu.Unlock()
		if now >= n {
			return
		}
		select {
		case <-news:
		case <-deadline:
			f.T.Fatalf("after a minute %d of %d are %s", now, n, kind)
		}
	}
}

// count returns how many events of a type have been recorded.
func (f *fixture) count(kind events.Type) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.total[kind]
}

// event returns an email's first event of the given type.
func (f *fixture) event(emailID string, kind events.Type) events.Event {
	f.T.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.seen {
		if e.EmailID == emailID && e.Type == kind {
			return e
		}
	}
	f.T.Fatalf("no event %s", kind)
	return events.Event{}
}

func (f *fixture) bounce(emailID string) *events.Bounce {
	f.T.Helper()
	return f.event(emailID, events.EmailBounced).Data.(*events.Bounce)
}

func (f *fixture) attempts(emailID string) []events.StoredAttempt {
	f.T.Helper()
	all, _, err := f.Emails.Attempts(context.WithoutCancel(f.T.Context()), f.Acme.TeamID, emailID, page.Page{})
	if err != nil {
		f.T.Fatal(err)
	}
	return all
}

func (f *fixture) state(emailID string) emails.State {
	f.T.Helper()
	return f.Email(emailID).LastEvent
}

// jobsLeft returns the number of delivery jobs in the queue.
func (f *fixture) jobsLeft() int {
	f.T.Helper()
	return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1`, emails.DeliveryKind)
}

// network resolves host names to servers on this machine. Each server has a fake address, which dial maps to the
// server's real address.
type network struct {
	dns   resolve.Fake
	hosts map[string]string // fake address with port 25 -> real address
	mu    sync.Mutex
	calls []string // names of the dialed hosts, in order
	names map[string]string
}

func newNetwork() *network {
	return &network{dns: resolve.Fake{MXRecords: map[string][]resolve.MX{}, AddrRecords: map[string][]netip.Addr{}},
		hosts: map[string]string{}, names: map[string]string{}}
}

// host adds a mail host for a domain. If addr is empty, the host cannot be reached.
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

// one returns a network with one mail host, mx.test, for the test destination.
func one(addr string) *network {
	n := newNetwork()
	n.host(destination, "mx.test", 10, addr)
	return n
}

// config returns a configuration that uses a network and waits only 1 ms between tries.
func (n *network) config(tries int) Config {
	return Config{Dial: n.dial, Schedule: slices.Repeat([]time.Duration{time.Millisecond}, tries), LaneConnections: 2,
		Signers: 2}
}

func address(i int) string { return "to" + strconv.Itoa(i) + "@" + destination }
