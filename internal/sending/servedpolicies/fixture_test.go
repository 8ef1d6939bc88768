package servedpolicies_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/servedpolicies"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	name       = "in.example" // the receiving domain
	inbound    = "inbound.postrider.test"
	publicHost = "postrider.test"
)

// start is the time at which the clock of a test begins. Certificates of the lab are valid then.
var start = time.Date(time.Now().Year()+2, 1, 1, 12, 0, 0, 0, time.UTC)

// idAt returns the id of a policy that changed at a time.
func idAt(t time.Time) string { return t.Format("20060102150405") }

// zone is a resolver whose records a test changes.
type zone struct {
	mu   sync.Mutex
	fake resolve.Fake
}

func (z *zone) now() resolve.Fake {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.fake
}

// set replaces the records.
func (z *zone) set(f func(*resolve.Fake)) {
	z.mu.Lock()
	defer z.mu.Unlock()
	next := resolve.Fake{AddrRecords: map[string][]netip.Addr{publicHost: {netip.MustParseAddr("192.0.2.1")}},
		MXRecords: z.fake.MXRecords, TXTRecords: z.fake.TXTRecords, CNAMERecords: z.fake.CNAMERecords}
	f(&next)
	z.fake = next
}

func (z *zone) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	return z.now().MX(ctx, name)
}
func (z *zone) Addrs(ctx context.Context, name string) ([]netip.Addr, error) {
	return z.now().Addrs(ctx, name)
}
func (z *zone) TXT(ctx context.Context, name string) ([]string, error) { return z.now().TXT(ctx, name) }
func (z *zone) CNAME(ctx context.Context, name string) (string, error) {
	return z.now().CNAME(ctx, name)
}
func (z *zone) CAA(ctx context.Context, name string) ([]resolve.CAA, error) {
	return z.now().CAA(ctx, name)
}
func (z *zone) PTR(ctx context.Context, a netip.Addr) ([]string, error) { return z.now().PTR(ctx, a) }

// fixture is a service whose policies a lab serves over HTTPS, and a sender that obtains them.
type fixture struct {
	*testnode.Node
	t      *testing.T
	s      *servedpolicies.Service
	sender *tlspolicies.Service
	lab    *ststest.Lab
	zone   *zone
	domain domains.Domain

	mu       sync.Mutex
	at       time.Time
	certErr  error // of the inbound host
	reports  [2]int64
	notices  []string
	recorded []events.Event

	duringFetch func() // nil for nothing
}

func (f *fixture) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.at
}

func (f *fixture) pass(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at = f.at.Add(d)
}

// Recorded implements events.Listener.
func (f *fixture) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	for _, e := range all {
		if _, ok := e.Data.(*events.Transport); ok {
			f.recorded = append(f.recorded, e)
		}
	}
	return nil
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	return newFixtureAt(t, d, ststest.New(t))
}

// newFixtureAt is like newFixture, with the given lab.
func newFixtureAt(t *testing.T, d *db.DB, lab *ststest.Lab) *fixture {
	t.Helper()
	f := &fixture{Node: testnode.New(t, d, testnode.Options{}), t: t, lab: lab, zone: &zone{},
		at: start}
	f.Recorder.Listen(f)
	on, off := true, false
	f.domain = f.Verified(f.Acme.TeamID, domains.NewDomain{Name: name,
		Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
	f.zone.set(func(z *resolve.Fake) { z.MXRecords = map[string][]resolve.MX{name: {{Host: inbound, Pref: 10}}} })
	var err error
	f.sender, err = tlspolicies.New(tlspolicies.Config{RootCAs: f.lab.CA.Pool(), Port: f.lab.Port, Now: f.now},
		tlspolicies.Deps{DB: d, DNS: f.lab.Resolver(), Fresh: f.lab.Resolver(), Log: slog.New(slog.DiscardHandler),
			Guard: netguard.New(netguard.Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})})
	f.Must(err)
	f.s = f.service(f.Node)
	return f
}

// service returns the service of a node.
func (f *fixture) service(n *testnode.Node) *servedpolicies.Service {
	f.t.Helper()
	s, err := servedpolicies.New(servedpolicies.Config{PublicHost: publicHost, Now: f.now}, servedpolicies.Deps{
		DB: n.DB, Recorder: n.Recorder, Domains: n.Domains, DNS: f.zone,
		Fetch: func(ctx context.Context, domain string) (mtasts.Policy, mtasts.Result, string) {
			if f.duringFetch != nil {
				f.duringFetch()
			}
			return f.sender.Probe(ctx, domain)
		},
		Suspended: func(ctx context.Context, teamID string) (bool, error) {
			team, err := n.Teams.Get(ctx, teamID)
			return team.Suspended, err
		},
		Notify: func(_ context.Context, _ *db.Tx, teamID, subject, text string) error {
			f.notices = append(f.notices, subject+"\n"+text)
			if teamID != f.Acme.TeamID {
				return fmt.Errorf("the notice goes to team %s", teamID)
			}
			return nil
		},
		Certificate: func(_ context.Context, host string) (*x509.Certificate, error) {
			if host != inbound {
				return nil, fmt.Errorf("asked about %s", host)
			}
			return &x509.Certificate{}, f.certErr
		},
		Reports: func(_ context.Context, teamID, domain string, since time.Time) (int64, int64, error) {
			if teamID != f.Acme.TeamID || domain != name || !since.Equal(f.now().Add(-14*24*time.Hour)) {
				return 0, 0, fmt.Errorf("asked about %s of team %s since %s", domain, teamID, since)
			}
			return f.reports[0], f.reports[1], nil
		}})
	f.Must(err)
	return s
}

// serve answers as the HTTPS listener does.
func (f *fixture) serve(w http.ResponseWriter, r *http.Request) {
	body, err := f.s.Body(r.Context(), "mta-sts."+name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, body)
}

// publish publishes the records that the policy needs, for the service and for the sender.
func (f *fixture) publish() {
	f.t.Helper()
	p := f.get()
	var txt string
	f.zone.set(func(z *resolve.Fake) {
		for _, r := range p.Records {
			switch r.Type {
			case "CNAME":
				z.CNAMERecords = map[string]string{r.Name: r.Value}
			case "TXT":
				txt = r.Value
				z.TXTRecords = map[string][]string{r.Name: {txt}}
			}
		}
	})
	cert := f.lab.CA.Until(time.Now().AddDate(10, 0, 0), "mta-sts."+name)
	f.lab.Set(name, ststest.Site{TXT: []string{txt}, Handler: f.serve, Certificate: &cert})
}

func (f *fixture) get() servedpolicies.Policy {
	f.t.Helper()
	p, err := f.s.Get(f.t.Context(), f.Acme.TeamID, f.domain.ID)
	f.Must(err)
	return p
}

func (f *fixture) set(c servedpolicies.Change) servedpolicies.Policy {
	f.t.Helper()
	p, err := f.s.Set(f.t.Context(), f.Acme.TeamID, f.domain.ID, c)
	f.Must(err)
	return p
}

func (f *fixture) check() servedpolicies.Policy {
	f.t.Helper()
	f.Must(f.s.Check(f.t.Context()))
	return f.get()
}

// expectBody compares what is served; "" means nothing.
func (f *fixture) expectBody(want string) {
	f.t.Helper()
	body, err := f.s.Body(f.t.Context(), "mta-sts."+name)
	if want == "" && !errors.Is(err, servedpolicies.ErrNoPolicy) || want != "" && err != nil || body != want {
		f.t.Errorf("the text is %q, %v instead of %q", body, err, want)
	}
}

// expectSender compares the policy that a sender obeys.
func (f *fixture) expectSender(mode string) {
	f.t.Helper()
	p, st, err := f.sender.For(f.t.Context(), name)
	if err != nil || string(p.Mode) != mode {
		f.t.Errorf("a sender obeys the mode %q instead of %q: %+v, %v", p.Mode, mode, st, err)
	}
}

// fieldOf returns the field that a fault names.
func fieldOf(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Field
	}
	return ""
}

func problems(p servedpolicies.Policy) (types string) {
	for _, x := range p.Problems {
		types += x.Type + " "
	}
	return types
}

func policy(mode string, age int, hosts ...string) string {
	text := "version: STSv1\nmode: " + mode + "\n"
	for _, h := range hosts {
		text += "mx: " + h + "\n"
	}
	return text + fmt.Sprintf("max_age: %d\n", age)
}
