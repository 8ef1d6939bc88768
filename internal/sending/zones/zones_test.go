package zones_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/mail/nameserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/sending/zones"
)

// fixture is a service with content that a test changes.
type fixture struct {
	*zones.Service
	t         *testing.T
	log       testnode.Logged
	published atomic.Pointer[nameserver.Set]

	mu       sync.Mutex // of what follows
	content  []nameserver.Zone
	err      error
	readings int
	awaited  []string
	partial  bool
	checked  []string // zones and the time of their checks
}

// set returns the published zones.
func (f *fixture) set() *nameserver.Set { return f.published.Load() }

// start runs a service in a bubble with a clock of its own (package synctest), until the test ends.
func start(t *testing.T, content ...nameserver.Zone) *fixture {
	t.Helper()
	return startWith(t, "postmaster.mail.host.example", content...)
}

// startWith is start with a mailbox of the operator's zone.
func startWith(t *testing.T, mailbox string, content ...nameserver.Zone) *fixture {
	t.Helper()
	f := &fixture{t: t, content: content}
	var err error
	f.Service, err = zones.New(zones.Config{Zone: "dns.host.example", Mailbox: mailbox,
		Servers: []zones.Server{
			{"ns1.dns.host.example", []netip.Addr{netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("2001:db8::1")}},
			{"ns.other.example", []netip.Addr{netip.MustParseAddr("203.0.113.2")}}}},
		zones.Deps{Content: f.read, Publish: f.published.Store, Now: time.Now,
			Check: f.check, Log: slog.New(slog.NewTextHandler(&f.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- f.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return f
}

func (f *fixture) read(context.Context) (nameserver.Content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readings++
	return nameserver.Content{Zones: f.content, Awaited: f.awaited, Partial: f.partial}, f.err
}

func (f *fixture) check(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.checked = append(f.checked, name)
	return f.err
}

// give replaces the content, with an error if err is not nil.
func (f *fixture) give(err error, content ...nameserver.Zone) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.content, f.err = content, err
}

// tooMany sets whether further domains have zones.
func (f *fixture) tooMany(is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.partial = is
}

func customer(name string, serial uint32) nameserver.Zone {
	return nameserver.Zone{Name: name, Serial: serial, NS: []string{"t.ns1.dns.host.example"},
		Mailbox: "postmaster.mail.host.example", Records: []nameserver.Record{
			{Name: name, Type: "TXT", TTL: 60, Value: "v=spf1 -all"}}}
}

func TestZonesAreReadAtTheStartAndAfterChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, customer("a.example", 1), customer("b.example", 1))
		if f.set().Len() != 3 || f.set().Zone("a.example").Serial() != 1 || f.Problem() != nil {
			t.Fatalf("%d zones, problem %v", f.set().Len(), f.Problem())
		}
		b := f.set().Zone("b.example")
		f.give(nil, customer("a.example", 2), customer("b.example", 1))
		for range 5 {
			f.Changed()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if f.readings != 2 || f.set().Zone("a.example").Serial() != 2 {
			t.Errorf("%d readings, serial %d", f.readings, f.set().Zone("a.example").Serial())
		}
		if f.set().Zone("b.example") != b {
			t.Error("a zone without changes was compiled again")
		}
		f.give(nil)
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if f.set().Len() != 3 {
			t.Error("the zones were read before a minute was over")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if f.set().Len() != 1 {
			t.Errorf("%d zones after a minute without a hint", f.set().Len())
		}
	})
}

func TestZonesStayWhileTheDatabaseIsAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t, customer("a.example", 1))
		f.give(errors.New("connection refused"))
		time.Sleep(4 * time.Minute)
		if f.set().Zone("a.example") == nil || f.Problem() != nil || f.State().Err == nil {
			t.Errorf("zone %v, problem %v, state %+v", f.set().Zone("a.example"), f.Problem(), f.State())
		}
		time.Sleep(4 * time.Minute)
		if f.set().Zone("a.example") == nil || f.Problem() == nil {
			t.Errorf("zone %v, problem %v", f.set().Zone("a.example"), f.Problem())
		}
		if n := strings.Count(f.log.String(), "connection refused"); n != 1 {
			t.Errorf("%d lines:\n%s", n, f.log.String())
		}
		f.give(nil, customer("c.example", 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.set().Zone("a.example") != nil || f.set().Zone("c.example") == nil || f.Problem() != nil {
			t.Errorf("problem %v", f.Problem())
		}
	})
}

func TestDatabaseIsAwayAtTheStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fixture{t: t, err: errors.New("connection refused")}
		s, err := zones.New(zones.Config{}, zones.Deps{Content: f.read, Publish: f.published.Store,
			Now: time.Now, Check: f.check, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if s.Problem() == nil {
			t.Error("no problem before the first reading")
		}
		ctx, cancel := context.WithCancel(t.Context())
		go s.Run(ctx)
		synctest.Wait()
		if f.set() != nil || s.Problem() == nil {
			t.Errorf("set %v, problem %v", f.set(), s.Problem())
		}
		f.give(nil, customer("a.example", 1))
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.set().Len() != 1 || s.Problem() != nil {
			t.Errorf("%d zones, problem %v", f.set().Len(), s.Problem())
		}
		cancel()
	})
}

func TestInvalidZonesAreLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := customer("broken.example", 1)
		broken.Mailbox = "not a name"
		f := start(t, broken, customer("a.example", 1), customer("a.example", 2),
			customer("token.rp.dns.host.example", 1))
		if f.set().Len() != 2 || f.set().Zone("a.example").Serial() != 1 || f.State().BadZones != 3 || f.Problem() != nil {
			t.Errorf("%d zones, state %+v, problem %v", f.set().Len(), f.State(), f.Problem())
		}
		time.Sleep(10 * time.Minute)
		for _, name := range []string{"broken.example", "a.example", "token.rp.dns.host.example"} {
			if n := strings.Count(f.log.String(), "zone="+name+" "); n != 1 {
				t.Errorf("%d lines about %s:\n%s", n, name, f.log.String())
			}
		}
		broken.Mailbox = customer("a.example", 1).Mailbox
		f.give(nil, broken)
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.set().Zone("broken.example") == nil || f.Problem() != nil {
			t.Errorf("problem %v", f.Problem())
		}
	})
}

// An invalid record does not take the zone of its domain with it.
func TestInvalidRecordsAreLeftOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		z := customer("a.example", 1)
		valid, err := nameserver.Compile(z)
		if err != nil {
			t.Fatal(err)
		}
		names := valid.Names()
		for name, value := range map[string]string{"x.a.example": "a\tb", "y.a.example": strings.Repeat("a", 5000),
			".mail.a.example": "a", strings.Repeat("abcdefg.", 31) + "a.example": "a"} {
			z.Records = append(z.Records, nameserver.Record{Name: name, Type: "TXT", TTL: 60, Value: value})
		}
		f := start(t, z)
		c := f.set().Zone("a.example")
		if c == nil || c.Names() != names || f.State().BadRecords != 4 || f.Problem() != nil {
			t.Fatalf("zone %+v, state %+v", c, f.State())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if f.set().Zone("a.example") != c || f.State().BadRecords != 4 {
			t.Errorf("after a further reading: state %+v", f.State())
		}
	})
}

// A problem of the name server is reported although a customer's zone is invalid, too.
func TestProblemsBesideInvalidZones(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broken := customer("broken.example", 1)
		broken.Mailbox = "not a name"
		f := start(t, customer("a.example", 1), broken)
		if f.Problem() != nil || f.State().BadZones != 1 {
			t.Errorf("problem %v, state %+v", f.Problem(), f.State())
		}
		f.tooMany(true)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if err := f.Problem(); err == nil || !strings.Contains(err.Error(), "more domains have zones") ||
			f.set().Zone("a.example") == nil {
			t.Errorf("with too many zones: problem %v, state %+v", err, f.State())
		}
		if n := strings.Count(f.log.String(), "more domains have zones"); n != 1 {
			t.Errorf("%d lines:\n%s", n, f.log.String())
		}
		f.give(errors.New("connection refused"))
		time.Sleep(6 * time.Minute)
		if err := f.Problem(); err == nil || !strings.Contains(err.Error(), "cannot be read") {
			t.Errorf("without the database: problem %v", err)
		}
		f.tooMany(false)
		f.give(nil, broken)
		time.Sleep(time.Minute)
		synctest.Wait()
		if f.Problem() != nil || f.State().BadZones != 1 {
			t.Errorf("at the end: problem %v, state %+v", f.Problem(), f.State())
		}
	})
}

// An invalid zone of the operator is a problem of the name server.
func TestOperatorsZoneIsInvalid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := startWith(t, "not a name", customer("a.example", 1))
		if err := f.Problem(); err == nil || !strings.Contains(err.Error(), "dns_zone") || f.State().BadZones != 0 ||
			f.set().Zone("a.example") == nil || !strings.Contains(f.log.String(), "level=ERROR") {
			t.Errorf("problem %v, state %+v, log:\n%s", err, f.State(), f.log.String())
		}
	})
}

// The operator's zone has the addresses of the name servers and customers' records.
func TestOperatorsZone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		records := nameserver.Zone{Name: "dns.host.example", Serial: 9, Records: []nameserver.Record{
			{Name: "t1.s1.dns.host.example", Type: "TXT", TTL: 60, Value: "v=DKIM1; p=AAAA"},
			{Name: "t1.rp.dns.host.example", Type: "MX", TTL: 60, Value: "10 mail.host.example"},
			{Name: "t2.rp.dns.host.example", Type: "MX", TTL: 60, Value: "wrong"},
			{Name: "*.ns1.dns.host.example", Type: "CNAME", TTL: 60, Value: "evil.example"}}}
		f := start(t, customer("a.example", 1), records)
		z := f.set().Zone("dns.host.example")
		// The apex, ns1, *.ns1, ns2, *.ns2, s1, t1.s1, rp and t1.rp.
		if z == nil || z.Serial() != 9 || z.Names() != 9 || f.State().BadRecords != 2 {
			t.Fatalf("zone %+v, state %+v", z, f.State())
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if f.set().Zone("dns.host.example") != z || f.State().BadRecords != 2 {
			t.Errorf("after a further reading: state %+v", f.State())
		}
	})
}

// A query about an awaited zone causes a check, at most once a minute per zone.
func TestQueriesAboutAwaitedZones(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := start(t)
		expect := func(want ...string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			if !slices.Equal(f.checked, want) {
				t.Errorf("checked %v, want %v", f.checked, want)
			}
		}
		f.Queried("a.example")
		f.Queried("a.example")
		f.Queried("b.example")
		expect("a.example", "b.example")
		f.Queried("a.example")
		expect("a.example", "b.example")
		f.give(errors.New("the database is away"))
		time.Sleep(time.Minute)
		f.Queried("a.example")
		expect("a.example", "b.example", "a.example")
		for i := range 300 {
			f.Queried(fmt.Sprintf("n%d.example", i))
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := len(f.checked); n < 100 || n > 110 {
			t.Errorf("%d checks after a flood", n)
		}
	})
}
