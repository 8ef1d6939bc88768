package delivery

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// withDestinations returns a fixture that is not running. Mail to some domains goes to the host mx.google.com.
func withDestinations(t *testing.T, d *db.DB, mx *smtptest.Server, all ...routing.Destination) *fixture {
	t.Helper()
	n := newNetwork()
	for _, domain := range []string{destination, "second.example", "third.example"} {
		n.host(domain, "mx.google.com", 10, mx.Addr)
	}
	n.host("other.example", "mx.other.test", 10, mx.Addr)
	cfg := n.config(3)
	cfg.Destinations, cfg.Dial, cfg.LaneConnections = all, n.dialOr, 4
	f := newFixture(t, d, cfg, n.dns)
	f.service.p.OnLimitRaised = func(group string) { f.runner.LimitRaised(f.service.Kind().Name, group) }
	f.service.shape.onShareRaised = f.service.p.OnLimitRaised
	f.service.shape.held = 10 * time.Millisecond
	return f
}

// Mail to a paused destination waits without an attempt, whether the table names the domain or its host. It is sent
// after the operator has changed the table.
func TestPausedDestination(t *testing.T) {
	t.Parallel()
	for what, paused := range map[string]routing.Destination{
		"domain":   {Name: "a", Domains: []string{destination}, Paused: true, Reason: "maintenance"},
		"host":     {Name: "a", Hosts: []string{"*.google.com"}, Paused: true, Reason: "maintenance"},
		"provider": {Name: "a", Providers: []evidence.Provider{evidence.Google}, Paused: true, Reason: "maintenance"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				mx := smtptest.NewServer(t, smtptest.Config{})
				f := withDestinations(t, d, mx, paused).run()
				id := f.send(address(1))
				f.wait(f.send("a@other.example"), events.EmailDelivered)
				testnode.Until(t, "the destination is known", func() bool {
					reason, _, held := f.service.Held(destination)
					return held && reason == "maintenance"
				})
				if n := len(f.attempts(id)); n != 0 || f.state(id) != emails.Queued || len(mx.Messages()) != 1 {
					t.Errorf("%d attempts, state %s, %d messages", n, f.state(id), len(mx.Messages()))
				}
				f.service.Apply(Config{Schedule: []time.Duration{time.Hour}})
				if _, _, held := f.service.Held(destination); held {
					t.Error("still held")
				}
				f.wait(id, events.EmailDelivered)
			})
		})
	}
}

// Domains that a table names together share its rate.
func TestRateOfADestination(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		f := withDestinations(t, d, mx, routing.Destination{Name: "google", Hosts: []string{"*.google.com"},
			Rate: 1.0 / 3600}).run()
		f.wait(f.send("a@second.example"), events.EmailDelivered)
		late := []string{f.send("a@third.example"), f.send("b@second.example")}
		f.wait(f.send("a@other.example"), events.EmailDelivered)
		testnode.Until(t, "the job is released until the rate allows a message", func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1 AND lane LIKE 'third.example%' AND attempt > 0
				AND holder IS NULL AND run_at > $2`, emails.DeliveryKind, d.Now().Add(30*time.Minute).UnixMicro()) == 1
		})
		if n := len(mx.Messages()); n != 2 {
			t.Errorf("%d messages", n)
		}
		for _, id := range late {
			if len(f.attempts(id)) != 0 {
				t.Errorf("attempts %+v", f.attempts(id))
			}
		}
		if group := f.service.group("third.example|team"); group != "table google" {
			t.Errorf("the lane belongs to %q", group)
		}
	})
}

func TestTLSOfADestination(t *testing.T) {
	t.Parallel()
	none, required := smtpclient.TLSNone, smtpclient.TLSRequired
	ca := smtptest.NewCA(t)
	for _, c := range []struct {
		name   string
		offers bool
		tls    *smtpclient.TLSMode
		want   events.Type
		secure bool
	}{{"none", true, &none, events.EmailDelivered, false}, {"by default", true, nil, events.EmailDelivered, true},
		{"required", false, &required, events.EmailDelayed, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := smtptest.Config{}
			if c.offers {
				o.TLS = ca.ServerTLS("mx.google.com")
			}
			mx := smtptest.NewServer(t, o)
			f := withDestinations(t, dbtest.SQLite(t), mx, routing.Destination{Name: "a", Domains: []string{destination},
				TLS: c.tls, Schedule: []time.Duration{time.Hour}}).run()
			id := f.send(address(1))
			f.wait(id, c.want)
			if got := mx.Messages(); len(got) > 0 && got[0].TLS != c.secure {
				t.Errorf("TLS: %v", got[0].TLS)
			}
			if a := f.attempts(id)[0]; c.want == events.EmailDelayed && (!strings.HasPrefix(a.Reply, "454") ||
				a.NextAt.Sub(a.StartedAt) < 40*time.Minute) {
				t.Errorf("attempt %+v", a)
			}
		})
	}
	if mode := directMode("enforced", &routing.Destination{TLS: &none}); mode != smtpclient.TLSRequired {
		t.Errorf("a destination weakens the sender's TLS to %v", mode)
	}
}

// Whether a table applies depends on the host with the best preference, even while that host fails or its address
// cannot be looked up. Otherwise, anybody who can make the host fail could remove the TLS that the table requires.
func TestTableOfTheBestHost(t *testing.T) {
	t.Parallel()
	required := smtpclient.TLSRequired
	dns := resolve.Fake{MXRecords: map[string][]resolve.MX{
		"down.example": {{Host: "best.test", Pref: 10}, {Host: "second.test", Pref: 20}},
		"lost.example": {{Host: "best.broken.test", Pref: 10}, {Host: "second.test", Pref: 20}},
		"same.example": {{Host: "best.test", Pref: 10}, {Host: "other.test", Pref: 10}},
	}, AddrRecords: map[string][]netip.Addr{"best.test": addrs("1.1.1.1"), "second.test": addrs("1.1.1.2"),
		"other.test": addrs("1.1.1.3")}, Fail: []string{"best.broken.test"}}
	s := newService(Config{Transport: Direct, Destinations: []routing.Destination{{Name: "a",
		Hosts: []string{"best.test", "best.broken.test"}, TLS: &required}}}, Deps{DNS: dns})
	s.ipv6.Store(-time.Now().Unix())
	s.hosts.claimDial("1.1.1.1:25", time.Now())
	s.hosts.endDial("1.1.1.1:25", noGreeting, answer{}, time.Now())
	for domain, hops := range map[string]int{"down.example": 2, "lost.example": 1, "same.example": 2} {
		w, err := s.choose(t.Context(), domain, "", domains.Opportunistic, nil)
		if err != nil || w.destination == nil || len(w.hops) != hops {
			t.Errorf("%s: %+v, %v", domain, w, err)
		}
		for _, h := range w.hops {
			if h.mode != required {
				t.Errorf("%s: the TLS mode of %s is %v", domain, h, h.mode)
			}
		}
	}
}

// TLS that a table requires is also required of a relay, because the mail would otherwise leave in clear.
func TestTLSOfADestinationThroughARelay(t *testing.T) {
	t.Parallel()
	none, required := smtpclient.TLSNone, smtpclient.TLSRequired
	for _, c := range []struct{ table, relay, want smtpclient.TLSMode }{
		{required, smtpclient.TLSOpportunistic, required}, {required, none, required},
		{required, smtpclient.TLSImplicit, smtpclient.TLSImplicit}, {none, required, required},
		{none, smtpclient.TLSOpportunistic, smtpclient.TLSOpportunistic},
	} {
		s := newService(Config{Transport: Relay, Relays: []routing.Relay{{Name: "r", Address: "relay.test:25", TLS: c.relay}},
			Destinations: []routing.Destination{{Name: "a", Domains: []string{destination}, TLS: &c.table}}}, Deps{})
		w, err := s.choose(t.Context(), destination, "", domains.Opportunistic, nil)
		if err != nil || len(w.hops) != 1 || w.hops[0].mode != c.want {
			t.Errorf("%+v: %+v, %v", c, w.hops, err)
		}
	}
}

// A domain whose mail goes to a relay because of its host is looked up again after a while, because it may have moved.
func TestDomainMovesFromARelay(t *testing.T) {
	t.Parallel()
	dns := resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: "mx.google.com", Pref: 10}}},
		AddrRecords: map[string][]netip.Addr{"mx.google.com": addrs("1.1.1.1"), "mx.new.test": addrs("1.1.1.2")}}
	s, now := newService(Config{Transport: Direct}, Deps{DNS: dns}), time.Now()
	s.ipv6.Store(-now.Unix())
	s.routes.Store(routing.New(routing.Config{Direct: true, Now: func() time.Time { return now },
		Relays:       []routing.Relay{{Name: "corp", Address: "relay.test:25", Domains: []string{"corp.example"}}},
		Destinations: []routing.Destination{{Name: "a", Hosts: []string{"*.google.com"}, Relay: "corp"}}}))
	for _, step := range []struct {
		later  time.Duration
		mx     string
		relays bool
	}{{0, "mx.google.com", true}, {time.Minute, "mx.new.test", true}, {time.Hour, "mx.new.test", false}} {
		now = now.Add(step.later)
		dns.MXRecords[destination][0].Host = step.mx
		if w, err := s.choose(t.Context(), destination, "", domains.Opportunistic, nil); err != nil || w.relays != step.relays {
			t.Errorf("%v later, at %s: %+v, %v", step.later, step.mx, w, err)
		}
	}
}

func TestMessagesPerConnectionOfADestination(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{})
	f := withDestinations(t, dbtest.SQLite(t), mx, routing.Destination{Name: "a", Domains: []string{destination},
		Messages: 1}).run()
	for i := range 3 {
		f.wait(f.send(address(i)), events.EmailDelivered)
	}
	if n := mx.Connections(); n != 3 {
		t.Errorf("%d connections", n)
	}
}

// A table with a small limit does not use a connection over which another table has sent as many messages.
func TestMessagesPerConnectionOfAStrictDestination(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{})
	f := withDestinations(t, dbtest.SQLite(t), mx, routing.Destination{Name: "strict", Domains: []string{destination},
		Messages: 1}).run()
	for _, step := range []struct {
		to          string
		connections int
	}{{"a@second.example", 1}, {address(1), 2}, {"b@second.example", 2}} { // the last one uses the first connection
		f.wait(f.send(step.to), events.EmailDelivered)
		if n := mx.Connections(); n != step.connections {
			t.Errorf("%d connections after the email to %s, want %d", n, step.to, step.connections)
		}
	}
}

// If TLS is required, a connection that was verified for one host is not used for another host at the same address.
func TestVerifiedConnectionOfAnotherHost(t *testing.T) {
	t.Parallel()
	ca, required := smtptest.NewCA(t), smtpclient.TLSRequired
	mx := smtptest.NewServer(t, smtptest.Config{TLS: ca.ServerTLS("mx.test")})
	n := one(mx.Addr)
	n.dns.MXRecords["second.example"] = []resolve.MX{{Host: "other.test", Pref: 10}}
	n.dns.AddrRecords["other.test"] = n.dns.AddrRecords["mx.test"]
	n.dns.MXRecords["third.example"] = []resolve.MX{{Host: "mx.test", Pref: 10}}
	cfg := n.config(1)
	cfg.RootCAs, cfg.Destinations = ca.Pool(), []routing.Destination{{Name: "strict", TLS: &required,
		Domains: []string{destination, "second.example", "third.example"}, Schedule: []time.Duration{time.Hour}}}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	id := f.send("a@second.example")
	f.wait(id, events.EmailDelayed)
	if a := f.attempts(id)[0]; !strings.HasPrefix(a.Reply, "454 4.7.5") || len(mx.Messages()) != 1 {
		t.Errorf("attempt %+v, %d messages", a, len(mx.Messages()))
	}
	f.wait(f.send("a@third.example"), events.EmailDelivered) // the same host
	if n := mx.Connections(); n != 2 {
		t.Errorf("%d connections, want one for each host", n)
	}
}

// A table can send mail through a relay that otherwise takes none, also if it names the host.
func TestRelayOfADestination(t *testing.T) {
	t.Parallel()
	for what, d := range map[string]routing.Destination{"domain": {Domains: []string{destination}},
		"host": {Hosts: []string{"mx.google.com"}}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			mx, relay := smtptest.NewServer(t, smtptest.Config{}), smtptest.NewServer(t, smtptest.Config{})
			d.Name, d.Relay = "a", "corp"
			f := withDestinations(t, dbtest.SQLite(t), mx)
			f.service.Apply(Config{Destinations: []routing.Destination{d},
				Relays: []routing.Relay{{Name: "corp", Address: relay.Addr}}})
			f.run()
			f.wait(f.send(address(1)), events.EmailDelivered)
			f.wait(f.send("a@other.example"), events.EmailDelivered)
			if len(mx.Messages()) != 1 || len(relay.Messages()) != 1 {
				t.Errorf("%d and %d messages", len(mx.Messages()), len(relay.Messages()))
			}
		})
	}
}

func TestRetriesOfADestination(t *testing.T) {
	t.Parallel()
	s := newService(Config{Schedule: []time.Duration{time.Minute, time.Minute}}, Deps{})
	now := time.Now()
	for _, c := range []struct {
		rules *routing.Destination
		tries int
		age   time.Duration
		wait  time.Duration
		over  bool
	}{
		{nil, 0, 0, time.Minute, false},
		{&routing.Destination{}, 0, 0, time.Minute, false},
		{&routing.Destination{Schedule: []time.Duration{time.Hour, time.Hour}}, 0, 0, time.Hour, false},
		{&routing.Destination{Lifetime: time.Hour}, 0, 59 * time.Minute, time.Minute, false},
		{&routing.Destination{Lifetime: time.Hour}, 0, 59*time.Minute + 1, time.Minute, true},
		{&routing.Destination{Lifetime: 30 * time.Second}, 0, 0, time.Minute, true},
		{&routing.Destination{Lifetime: time.Minute}, 0, 0, time.Minute, false},
		{&routing.Destination{Schedule: []time.Duration{time.Hour, time.Hour}, Lifetime: 2 * time.Hour}, 1, time.Hour + 1,
			time.Hour, true},
	} {
		j := jobs.Job{Tries: c.tries, CreatedAt: now.Add(-c.age)}
		if wait, over := s.nextWait(&try{job: j, rules: c.rules}, now); wait != c.wait || over != c.over {
			t.Errorf("%+v after %v: %v, %v", c.rules, c.age, wait, over)
		}
	}
}

// New limits apply at once. A destination that has asked for fewer connections keeps its lower number.
func TestLimitsChange(t *testing.T) {
	t.Parallel()
	now, limits := time.Now(), routing.Limits{Connections: 8}
	s := newShaper(1, 0)
	s.limitsOf = func(string) routing.Limits { return limits }
	expect := func(what string, n int, later bool) {
		t.Helper()
		if got, again := s.limit("d", now); got != n || again.IsZero() == later {
			t.Errorf("%s: %d jobs, again %v", what, got, again)
		}
	}
	expect("at first", 8, false)
	limits.Connections = 3
	expect("fewer", 3, false)
	limits.Connections = 12
	expect("more", 12, false)
	for range 2 {
		s.recordVerdicts("d", throttled, time.Second, now)
	}
	now = now.Add(pauseMin)
	expect("asked for less", 6, false)
	limits.Connections = 10
	expect("asked for less, more allowed", 6, false)
	limits.Connections = 4
	expect("fewer than asked for", 4, false)
	for range 100 { // without a rate limit, messages use no tokens
		p, err := s.acquire(t.Context(), "d", "team", "team")
		if err != nil {
			t.Fatal(err)
		}
		p.release(true, replied)
	}
	limits.Rate = 2
	expect("a rate", 2, true)
	limits.Rate, limits.Paused = 0, true
	expect("paused", 0, true)
	if ok, again := s.admits("d", now); ok || !again.After(now) {
		t.Error("a paused destination admits a message")
	}
	limits.Paused = false
	expect("resumed", 4, false)
	if ok, _ := s.admits("d", now); !ok {
		t.Error("a message is not admitted")
	}
}

// A table may allow more connections to one address than the setting.
func TestMoreConnectionsToAnAddress(t *testing.T) {
	t.Parallel()
	h, now := newHosts(2), time.Now()
	h.pool = newPool(10, 10)
	h.raise("a:25", 5, now)
	h.raise("a:25", 3, now)
	for i := range 6 {
		if may, _, _ := h.begin("a:25", string(rune('a'+i)), now); !may {
			t.Fatalf("team %d may not begin", i) // each team may have one
		}
	}
	if h.limit("a:25") != 5 || h.limit("b:25") != 2 {
		t.Errorf("limits %d and %d", h.limit("a:25"), h.limit("b:25"))
	}
	if one := h.entries["a:25"]; one.share != 5 || one.talking != 6 {
		t.Errorf("%+v", one)
	}
}
