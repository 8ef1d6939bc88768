package delivery

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// changingDNS is a resolve.Secure whose records a test can replace while it is in use.
type changingDNS struct{ now atomic.Pointer[resolve.Fake] }

func changing(f resolve.Fake) *changingDNS {
	c := new(changingDNS)
	c.now.Store(&f)
	return c
}

func (c *changingDNS) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	return c.now.Load().MX(ctx, name)
}

func (c *changingDNS) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	return c.now.Load().Addrs(ctx, host)
}

func (c *changingDNS) TXT(ctx context.Context, name string) ([]string, error) {
	return c.now.Load().TXT(ctx, name)
}

func (c *changingDNS) CNAME(ctx context.Context, name string) (string, error) {
	return c.now.Load().CNAME(ctx, name)
}

func (c *changingDNS) CAA(ctx context.Context, name string) ([]resolve.CAA, error) {
	return c.now.Load().CAA(ctx, name)
}

func (c *changingDNS) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	return c.now.Load().PTR(ctx, addr)
}

func (c *changingDNS) MXSecure(ctx context.Context, name string) (resolve.Answer[resolve.MX], error) {
	return c.now.Load().MXSecure(ctx, name)
}

func (c *changingDNS) AddrsSecure(ctx context.Context, host string) (resolve.Answer[netip.Addr], error) {
	return c.now.Load().AddrsSecure(ctx, host)
}

func (c *changingDNS) CNAMESecure(ctx context.Context, name string) (resolve.Answer[string], error) {
	return c.now.Load().CNAMESecure(ctx, name)
}

func (c *changingDNS) TLSA(ctx context.Context, name string) (resolve.Answer[resolve.TLSA], error) {
	return c.now.Load().TLSA(ctx, name)
}

// The MX records and the TLSA records of the first host change while that host receives an email. The email is
// delivered as planned before the change. The next email goes to the new host, and no email uses the connection to the
// first one.
func TestMXChangesInFlight(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ca := smtptest.NewCA(t)
		one, two := ca.ServerTLS("one.test"), ca.ServerTLS("two.test")
		first, err := dane.For(one.Certificates[0].Leaf.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		second, err := dane.For(two.Certificates[0].Leaf.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		dns := new(changingDNS)
		n, later := newNetwork(), newNetwork()
		old := smtptest.NewServer(t, smtptest.Config{TLS: one, Mail: func(string) string {
			dns.now.Store(&later.dns)
			return ""
		}})
		other := smtptest.NewServer(t, smtptest.Config{TLS: two})
		n.host(destination, "mx.test", 10, old.Addr)
		n.host("unused.example", "mx2.test", 10, other.Addr)
		n.dns.SignedZones = []string{destination, "test"}
		n.dns.TLSARecords = map[string][]resolve.TLSA{tlsaName: {first}}
		later.dns = n.dns
		later.dns.MXRecords = map[string][]resolve.MX{destination: {{Host: "mx2.test", Pref: 10}, {Host: "mx.test", Pref: 20}}}
		later.dns.TLSARecords = map[string][]resolve.TLSA{tlsaName: {second}, "_25._tcp.mx2.test": {second}}
		dns.now.Store(&n.dns)
		cfg := n.config(1)
		cfg.DANE, cfg.Schedule = true, []time.Duration{time.Hour}
		f := newFixture(t, d, cfg, dns).run()
		for range 2 {
			x := f.send(address(1))
			f.wait(x, events.EmailDelivered)
			if a := f.attempts(x)[0]; !strings.HasSuffix(a.TLS, "verified by DANE") {
				t.Errorf("attempt %+v", a)
			}
		}
		if a, b := len(old.Messages()), len(other.Messages()); a != 1 || b != 1 {
			t.Errorf("the hosts have %d and %d messages", a, b)
		}
		// If the new host is gone, its predecessor gets nothing over the connection that old records verified.
		other.Close()
		f.wait(f.send(address(2)), events.EmailDelayed)
		if a := len(old.Messages()); a != 1 {
			t.Errorf("the first host has %d messages", a)
		}
	})
}

// TLSA records appear, change and are withdrawn between the tries of an email. Each try obeys those of its time, over
// new and over kept connections.
func TestRecordsChangeBetweenTries(t *testing.T) {
	t.Parallel()
	server := smtptest.NewCA(t).ServerTLS("mx.test")
	right, err := dane.For(server.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	wrong := right
	wrong.Data = make([]byte, len(right.Data))
	busy := atomic.Bool{}
	mx := smtptest.NewServer(t, smtptest.Config{TLS: server, Rcpt: func(string, string) string {
		if busy.Load() {
			return "451 4.2.0 later"
		}
		return ""
	}})
	n := signed(mx.Addr)
	dns := changing(n.dns)
	cfg := n.config(1)
	cfg.DANE, cfg.Schedule = true, slices.Repeat([]time.Duration{time.Hour}, 5)
	f := newFixture(t, dbtest.SQLite(t), cfg, dns).run()
	busy.Store(true)
	x := f.send(address(1))
	f.await(events.EmailDelayed, 1)
	for i, c := range []struct {
		records []resolve.TLSA
		rule    evidence.Rule
		reply   string
	}{
		{[]resolve.TLSA{wrong}, evidence.DANE, "454 4.7.5"}, {[]resolve.TLSA{right}, evidence.DANE, "451 4.2.0"},
		{[]resolve.TLSA{wrong}, evidence.DANE, "454 4.7.5"},
	} {
		now := n.dns
		now.TLSARecords = map[string][]resolve.TLSA{tlsaName: c.records}
		dns.now.Store(&now)
		f.dueNow(x)
		f.await(events.EmailDelayed, i+2)
		a, e := f.attempts(x), f.evidence(x)
		if last := len(a) - 1; !strings.HasPrefix(a[last].Reply, c.reply) || e[last].Rule != c.rule {
			t.Errorf("try %d: %+v by rule %d", i+2, a[last], e[last].Rule)
		}
	}
	busy.Store(false)
	f.dueNow(x)
	f.await(events.EmailDelayed, 5)
	if got := len(mx.Messages()); got != 0 {
		t.Errorf("the host has %d messages", got)
	}
	dns.now.Store(&n.dns)
	f.dueNow(x)
	f.wait(x, events.EmailDelivered)
}

// A policy that is only tested forbids nothing, but the next try obeys the policy that is enforced by then.
func TestPolicyChangesBetweenTries(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	lab.Set(destination, policy("1", "testing", "mx.test"))
	busy := atomic.Bool{}
	busy.Store(true)
	mx := smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string {
		if busy.Load() {
			return "451 4.2.0 later"
		}
		return ""
	}})
	n := one(mx.Addr)
	cfg := n.config(1)
	cfg.RootCAs, cfg.Schedule = lab.CA.Pool(), slices.Repeat([]time.Duration{time.Hour}, 5)
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab).run()
	x := f.send(address(1))
	f.await(events.EmailDelayed, 1)
	busy.Store(false)
	lab.Set(destination, policy("2", "enforce", "mx.test"))
	f.dueNow(x)
	f.await(events.EmailDelayed, 2)
	if a := f.attempts(x)[1]; !strings.HasPrefix(a.Reply, "454 4.7.4") || f.evidence(x)[1].Rule != evidence.MTASTS {
		t.Errorf("attempt %+v", a)
	}
	if got := len(mx.Messages()); got > 0 {
		t.Errorf("the host has %d messages", got)
	}
	lab.Set(destination, policy("3", "none"))
	f.dueNow(x)
	f.wait(x, events.EmailDelivered)
}
