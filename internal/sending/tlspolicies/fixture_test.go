package tlspolicies_test

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func sqlite(t *testing.T) *db.DB { return dbtest.SQLite(t) }

// clock is a clock that a test moves.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *clock { return &clock{now: time.Now().UTC().Truncate(time.Microsecond)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// fixture is a service with a lab.
type fixture struct {
	*testing.T
	lab   *ststest.Lab
	clock *clock
	d     *db.DB
	s     *tlspolicies.Service
	log   *logged
}

func newFixture(t *testing.T, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{T: t, lab: ststest.New(t), clock: newClock(), log: &logged{}}
	f.d, f.s = d, f.service(d)
	return f
}

// loopback allows the address of the lab.
func loopback() *netguard.Guard {
	return netguard.New(netguard.Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
}

func (f *fixture) config() tlspolicies.Config {
	return tlspolicies.Config{RootCAs: f.lab.CA.Pool(), Port: f.lab.Port, Now: f.clock.Now,
		Limits: tlspolicies.Limits{Fetches: 1e3, SiteFetches: 1e3, FetchesPerMinute: 1e6, SiteFetchesPerMinute: 1e6}}
}

func (f *fixture) deps(d *db.DB) tlspolicies.Deps {
	return tlspolicies.Deps{DB: d, DNS: f.lab.Resolver(), Fresh: f.lab.Resolver(), Guard: loopback(),
		Log: slog.New(f.log)}
}

// service returns another service, as on another node. The changes apply to its configuration.
func (f *fixture) service(d *db.DB, changes ...func(*tlspolicies.Config, *tlspolicies.Deps)) *tlspolicies.Service {
	f.Helper()
	c, p := f.config(), f.deps(d)
	for _, change := range changes {
		change(&c, &p)
	}
	s, err := tlspolicies.New(c, p)
	if err != nil {
		f.Fatal(err)
	}
	return s
}

// publish makes a domain announce a policy.
func (f *fixture) publish(domain, id, policy string) {
	f.lab.Set(domain, ststest.Site{TXT: ststest.Record(id), Policy: policy})
}

// expect checks the policy and the state of a domain, and the number of fetches so far.
func (f *fixture) expect(s *tlspolicies.Service, domain string, mode mtasts.Mode, origin tlspolicies.Origin,
	result mtasts.Result, fetches int) {
	f.Helper()
	p, st := f.find(s, domain)
	f.compare(domain, p, st, mode, origin, result)
	if got := f.lab.Fetches(domain); got != fetches {
		f.Errorf("%s was asked %d times for its policy, want %d", domain, got, fetches)
	}
}

// find returns the policy and the state of a domain.
func (f *fixture) find(s *tlspolicies.Service, domain string) (mtasts.Policy, tlspolicies.State) {
	f.Helper()
	p, st, err := s.For(f.Context(), domain)
	if err != nil {
		f.Errorf("the policy of %s: %v", domain, err)
	}
	return p, st
}

// renew is find before a bounce.
func (f *fixture) renew(s *tlspolicies.Service, domain string) (mtasts.Policy, tlspolicies.State) {
	f.Helper()
	p, st, err := s.Renew(f.Context(), domain)
	if err != nil {
		f.Errorf("the policy of %s: %v", domain, err)
	}
	return p, st
}

// unknown checks that mail for a domain must wait.
func (f *fixture) unknown(s *tlspolicies.Service, domain string) {
	f.Helper()
	p, st, err := s.For(f.Context(), domain)
	if !errors.Is(err, tlspolicies.ErrUnknown) || !fault.IsOutage(err) || p.Mode != "" || st.Origin != tlspolicies.NoPolicy {
		f.Errorf("%s: %+v, %+v, outage %v, %v; want an error", domain, p, st, fault.IsOutage(err), err)
	}
}

func (f *fixture) compare(domain string, p mtasts.Policy, st tlspolicies.State, mode mtasts.Mode,
	origin tlspolicies.Origin, result mtasts.Result) {
	f.Helper()
	if p.Mode != mode || st.Origin != origin || st.Result != result {
		f.Errorf("the policy of %s is %+v, and the state %+v; want %q, %s and %q", domain, p, st, mode, origin, result)
	}
	if (st.ID == "" || st.ExpiresAt.IsZero()) != (mode == "") {
		f.Errorf("the state of %s says: %+v", domain, st)
	}
}

// run runs a database until the test ends, so that it gets the hints of others.
func run(t *testing.T, d *db.DB) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	listening := make(chan struct{}, 1)
	d.OnListening(func() {
		select {
		case listening <- struct{}{}:
		default:
		}
	})
	go func() {
		defer close(done)
		d.Run(ctx)
	}()
	t.Cleanup(func() { stop(); <-done })
	<-listening
}

// logged keeps the messages of warnings and errors.
type logged struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (l *logged) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }
func (l *logged) WithAttrs([]slog.Attr) slog.Handler               { return l }
func (l *logged) WithGroup(string) slog.Handler                    { return l }

func (l *logged) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

// take returns the messages since the last call.
func (l *logged) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	return all
}
