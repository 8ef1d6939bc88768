package delivery

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/evidence"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// withPolicies makes the delivery service of a fixture obey the policies of a lab. Call it before run.
func (f *fixture) withPolicies(lab *ststest.Lab) *fixture {
	f.T.Helper()
	guard := netguard.New(netguard.Options{AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	p, err := tlspolicies.New(tlspolicies.Config{RootCAs: lab.CA.Pool(), Port: lab.Port}, tlspolicies.Deps{DB: f.DB,
		DNS: lab.Resolver(), Fresh: lab.Resolver(), Guard: guard, Log: f.Log})
	if err != nil {
		f.T.Fatal(err)
	}
	f.service.p.TLSPolicies = p
	return f
}

// policy is a site with a policy.
func policy(id, mode string, mx ...string) ststest.Site {
	return ststest.Site{TXT: ststest.Record(id), Policy: ststest.Policy(mode, 86400, mx...)}
}

// A host that does not satisfy an enforced policy gets nothing, neither encrypted nor in clear. A policy that is only
// tested forbids nothing.
func TestDeliverByPolicy(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	right, wrong := lab.CA.ServerTLS("mx.test"), lab.CA.ServerTLS("other.test")
	expired := lab.CA.ServerTLS("mx.test")
	expired.Certificates[0] = lab.CA.Expired("mx.test")
	stranger := smtptest.NewCA(t).ServerTLS("mx.test")
	for _, c := range []struct {
		name   string
		site   ststest.Site
		server smtptest.Config
		reply  string // the beginning; "" if the email is delivered
		tls    string // the end
		rule   evidence.Rule
	}{
		{"right", policy("1", "enforce", "mx.test"), smtptest.Config{TLS: right}, "", "certificate verified",
			evidence.MTASTS},
		{"another name", policy("1", "enforce", "mx.test"), smtptest.Config{TLS: wrong}, "454 4.7.5", "", evidence.MTASTS},
		{"expired", policy("1", "enforce", "mx.test"), smtptest.Config{TLS: expired}, "454 4.7.5", "", evidence.MTASTS},
		{"unknown authority", policy("1", "enforce", "mx.test"), smtptest.Config{TLS: stranger}, "454 4.7.5", "",
			evidence.MTASTS},
		{"no STARTTLS", policy("1", "enforce", "mx.test"), smtptest.Config{}, "454 4.7.4", "", evidence.MTASTS},
		{"another host", policy("1", "enforce", "mx.other.test"), smtptest.Config{TLS: right}, "451 4.7.5", "",
			evidence.MTASTS},
		{"tested", policy("1", "testing", "mx.other.test"), smtptest.Config{TLS: wrong}, "", "certificate not verified",
			evidence.MTASTSTesting},
		{"tested, no STARTTLS", policy("1", "testing", "mx.test"), smtptest.Config{}, "", "", evidence.MTASTSTesting},
		{"withdrawn", policy("1", "none"), smtptest.Config{}, "", "", 0},
		{"unreadable", ststest.Site{TXT: ststest.Record("1"), Policy: "version: STSv2"}, smtptest.Config{}, "", "", 0},
		{"none", ststest.Site{}, smtptest.Config{}, "", "", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				mx := smtptest.NewServer(t, c.server)
				lab.Set(destination, c.site)
				n := one(mx.Addr)
				cfg := n.config(1)
				cfg.RootCAs, cfg.Schedule = lab.CA.Pool(), []time.Duration{time.Hour}
				f := newFixture(t, d, cfg, n.dns).withPolicies(lab).run()
				x, want := f.send(address(1)), events.EmailDelivered
				if c.reply != "" {
					want = events.EmailDelayed
				}
				f.wait(x, want)
				if got := len(mx.Messages()); got > 0 != (c.reply == "") {
					t.Errorf("the host has %d messages", got)
				}
				a := f.attempts(x)[0]
				if !strings.HasPrefix(a.Reply, c.reply) || !strings.HasSuffix(a.TLS, c.tls) || (a.TLS == "") != (c.tls == "") {
					t.Errorf("attempt %+v", a)
				}
				if rule := f.evidence(x)[0].Rule; rule != c.rule {
					t.Errorf("the rule is %d, want %d", rule, c.rule)
				}
			})
		})
	}
}

// Before an email bounces, the policy is read anew: the owner of the domain may have mended it (RFC 8461 section 5.1).
func TestPolicyIsReadAnewBeforeABounce(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	lab.Set(destination, policy("1", "enforce", "mx.test"))
	mx := smtptest.NewServer(t, smtptest.Config{TLS: lab.CA.ServerTLS("other.test")})
	n := one(mx.Addr)
	cfg := n.config(1)
	cfg.RootCAs, cfg.Schedule = lab.CA.Pool(), []time.Duration{time.Hour}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab).run()
	x := f.send(address(1))
	f.wait(x, events.EmailDelayed)
	lab.Set(destination, policy("2", "none"))
	f.dueNow(x)
	f.wait(x, events.EmailDelivered)
	if got := lab.Fetches(destination); got != 2 {
		t.Errorf("the policy was fetched %d times", got)
	}
}

// Mail that goes through a relay of the operator because of the domain's mail hosts needs neither the domain's policy
// nor the addresses of its hosts.
func TestRelayByHostNeedsNoPolicy(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	lab.Set(destination, policy("1", "enforce", "mx.other.test"))
	relay := smtptest.NewServer(t, smtptest.Config{})
	n := one("")
	n.dns.Fail = []string{"addr mx.test"}
	cfg := n.config(1)
	cfg.Dial = n.dialOr
	cfg.Relays = []routing.Relay{{Name: "provider", Address: relay.Addr, Domains: []string{"elsewhere.example"}}}
	cfg.Destinations = []routing.Destination{{Name: "hosts", Hosts: []string{"mx.test"}, Relay: "provider"}}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	if got := lab.Fetches(destination); got != 0 || len(relay.Messages()) != 1 {
		t.Errorf("the policy was fetched %d times, and the relay has %d messages", got, len(relay.Messages()))
	}
}

// A host whose certificate one domain does not accept goes on taking as many messages at once for other domains.
func TestRefusedCertificateLeavesTheWindow(t *testing.T) {
	t.Parallel()
	lab := ststest.New(t)
	lab.Set(destination, policy("1", "enforce", "mx.test"))
	mx := smtptest.NewServer(t, smtptest.Config{TLS: lab.CA.ServerTLS("other.test")})
	n := one(mx.Addr)
	n.dns.MXRecords["plain.example"] = n.dns.MXRecords[destination]
	cfg := n.config(1)
	cfg.RootCAs, cfg.Schedule = lab.CA.Pool(), []time.Duration{time.Hour}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).withPolicies(lab).run()
	for range 3 {
		f.wait(f.send("to@plain.example"), events.EmailDelivered)
	}
	limit := func() (n int) {
		f.service.hosts.mu.Lock()
		defer f.service.hosts.mu.Unlock()
		for k, l := range f.service.hosts.conversations {
			if strings.HasPrefix(k.addr, "10.") {
				n = l.limit
			}
		}
		return n
	}
	before := limit()
	f.wait(f.send(address(1)), events.EmailDelayed)
	if after := limit(); before < 2 || after != before {
		t.Errorf("the limit was %d and is %d", before, after)
	}
}
