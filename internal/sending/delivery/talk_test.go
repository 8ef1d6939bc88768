package delivery

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
)

func TestDeliverByPreference(t *testing.T) {
	t.Parallel()
	good := smtptest.NewServer(t, smtptest.Config{})
	busy := smtptest.NewServer(t, smtptest.Config{Greet: func() string { return "421 4.3.2 too busy" }})
	strict := smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string { return "550 5.1.1 no such user" }})
	for _, c := range []struct {
		name  string
		hosts [][2]string // name and address of each host, in order of preference
		want  []string    // dialled
		event events.Type
	}{
		{"the first that works", [][2]string{{"a.test", good.Addr}, {"b.test", strict.Addr}}, []string{"a.test"},
			events.EmailDelivered},
		{"past one that is down", [][2]string{{"a.test", ""}, {"b.test", good.Addr}}, []string{"a.test", "b.test"},
			events.EmailDelivered},
		{"past one that is busy", [][2]string{{"a.test", busy.Addr}, {"b.test", good.Addr}}, []string{"a.test", "b.test"},
			events.EmailDelivered},
		{"not past a refusal", [][2]string{{"a.test", strict.Addr}, {"b.test", good.Addr}}, []string{"a.test"},
			events.EmailBounced},
		{"none", [][2]string{{"a.test", ""}, {"b.test", ""}}, []string{"a.test", "b.test"}, events.EmailDelayed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork()
			for i, host := range c.hosts {
				n.host(destination, host[0], uint16(10*i), host[1])
			}
			cfg := n.config(1)
			cfg.Schedule = []time.Duration{time.Hour}
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
			x := f.send(address(1))
			f.wait(x, c.event)
			if diff := cmp.Diff(c.want, n.dialled()); diff != "" {
				t.Error(diff)
			}
			for _, name := range c.want {
				if a := f.attempts(x)[0]; len(c.want) > 1 && a.Outcome == "delayed" && !strings.Contains(a.Host+a.Conversation,
					"10.0.0.") {
					t.Errorf("the attempt does not tell of %s: %+v", name, a)
				}
			}
		})
	}
}

func TestDeliverNowhere(t *testing.T) {
	t.Parallel()
	public := netip.MustParseAddr("127.0.0.1")
	for _, c := range []struct {
		name, code string
		dns        resolve.Fake
		suppress   bool
	}{
		{"null MX", "556 5.1.10", resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: ""}}}}, true},
		{"no such domain", "550 5.1.2", resolve.Fake{}, false},
		{"no host", "550 5.1.2", resolve.Fake{TXTRecords: map[string][]string{destination: {"x"}}}, false},
		{"ourselves", "554 5.4.6", resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: "out.postrider.test",
			Pref: 1}, {Host: "mx.test", Pref: 5}}},
			AddrRecords: map[string][]netip.Addr{"mx.test": {public}}}, false},
		{"private addresses", "550 5.4.4",
			resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: "mx.test", Pref: 1}}},
				AddrRecords: map[string][]netip.Addr{"mx.test": {public, netip.MustParseAddr("192.168.1.1"),
					netip.MustParseAddr("::1")}}}, false},
		{"hosts without addresses", "550 5.1.2",
			resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: "mx.test", Pref: 1}}}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t, dbtest.SQLite(t), Config{}, c.dns)
			f.service.guard = newService(Config{}, Deps{}).guard // the guard blocks private addresses, as in production
			f.run()
			x := f.send(address(1))
			f.wait(x, events.EmailBounced)
			b := f.bounce(x)
			if b.Type != permanent || b.SubType != general || b.Suppress != c.suppress || !strings.HasPrefix(b.DiagnosticCode[0],
				"smtp; "+c.code+" ") {
				t.Errorf("bounce %+v", b)
			}
		})
	}
	t.Run("DNS that does not answer is no bounce", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t, dbtest.SQLite(t), Config{}, resolve.Fake{Fail: []string{destination}}).run()
		x := f.send(address(1))
		f.wait(x, events.EmailDelayed)
		if a := f.attempts(x); a[0].Outcome != "delayed" || !strings.HasPrefix(a[0].Reply, "451 4.4.3") {
			t.Errorf("attempt %+v", a)
		}
	})
}

func TestDeliverTLS(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	for _, c := range []struct {
		name, domainTLS string
		server          smtptest.Config
		want            events.Type
		tls             bool
	}{
		{"enforced and verified", domains.Enforced, smtptest.Config{TLS: ca.ServerTLS("mx.test")}, events.EmailDelivered,
			true},
		{"enforced, another's certificate", domains.Enforced, smtptest.Config{TLS: ca.ServerTLS("other.test")},
			events.EmailDelayed, false},
		{"enforced and not offered", domains.Enforced, smtptest.Config{}, events.EmailDelayed, false},
		{"opportunistic takes any certificate", domains.Opportunistic, smtptest.Config{TLS: ca.ServerTLS("other.test")},
			events.EmailDelivered, true},
		{"opportunistic and not offered", domains.Opportunistic, smtptest.Config{}, events.EmailDelivered, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			mx := smtptest.NewServer(t, c.server)
			n := one(mx.Addr)
			cfg := n.config(1)
			cfg.RootCAs, cfg.Schedule = ca.Pool(), []time.Duration{time.Hour}
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
			if err := f.Domains.Update(t.Context(), f.Acme.TeamID, f.Sender.ID, domains.Change{TLS: &c.domainTLS}); err != nil {
				t.Fatal(err)
			}
			f.run()
			x := f.send(address(1))
			f.wait(x, c.want)
			if got := mx.Messages(); len(got) > 0 != (c.want == events.EmailDelivered) || len(got) > 0 && got[0].TLS != c.tls {
				t.Errorf("messages %+v", got)
			}
			if a := f.attempts(x)[0]; c.want == events.EmailDelayed && !strings.HasPrefix(a.Reply, "454 4.7.") ||
				c.tls != (a.TLS != "") {
				t.Errorf("attempt %+v", a)
			}
		})
	}
}

func TestDeliverPlainWhereTLSIsBroken(t *testing.T) {
	t.Parallel()
	broken := "S: 220 mx.test\nC: EHLO *\nS: 250-mx.test\nS: 250 STARTTLS\nC: STARTTLS\nS: 220 go\n(drop)\n(next)\n"
	plain := "S: 220 mx.test\nC: EHLO *\nS: 250-mx.test\nS: 250 STARTTLS\nC: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 " +
		"ok\nC: DATA\nS: 354 go\n(data)\nS: 250 ok\n(drop)\n"
	p := smtptest.Script(t, broken+plain+"(next)\n"+plain)
	n := one(p.Addr)
	cfg := n.config(1)
	cfg.ConnectionMessages = 1
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	f.wait(f.send(address(2)), events.EmailDelivered) // the failed TLS handshake is remembered for this host
}

func TestDeliverToHostsThatMisbehave(t *testing.T) {
	t.Parallel()
	const envelope = "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\nC: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\nC: " +
		"DATA\nS: 354 go\n"
	const opening = "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\n"
	for _, c := range []struct {
		name, dialogue, outcome, reply string
	}{
		{"stalls at the greeting", "(stall)\n", "delayed", "451 4.4."},
		{"stalls after MAIL", opening + "C: MAIL *\n(stall)\n", "delayed", "451 4.4.2"},
		{"stalls after the dot", envelope + "(data)\n(stall)\n", "unknown", "451 4.4.2"},
		{"drops after the dot", envelope + "(data)\n(drop)\n", "unknown", "451 4.4.2"},
		{"drips after the dot", envelope + "(data)\n(drip)\n", "unknown", "451 4.4.2"},
		{"talks without end after the dot", envelope + "(data)\n(endless lines)\n", "unknown", "451 4.4.2"},
		{"talks in one line without end after the dot", envelope + "(data)\n(endless line)\n", "unknown", "451 4.4.2"},
		{"drops after RCPT", opening + "C: MAIL *\nS: 250 ok\nC: RCPT *\n(drop)\n", "delayed", "451 4.4.2"},
		{"talks without end", "S: 220 mx.test\nC: EHLO *\n(endless lines)\n", "delayed", "451 4.4.2"},
		{"talks in one line without end", "(endless line)\n", "delayed", "451 4.4.2"},
		{"speaks another language", "S: HTTP/1.1 400 Bad Request\n(drop)\n", "delayed", "451 4.4.2"},
		{"says 5xx at the greeting", "S: 554 5.7.1 go away\n(drop)\n", "delayed", "554 5.7.1 go away"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := smtptest.Script(t, c.dialogue)
			n := one(p.Addr)
			cfg := n.config(1)
			cfg.Schedule = []time.Duration{time.Hour}
			cfg.Timeouts.Greeting, cfg.Timeouts.Command, cfg.Timeouts.Final = time.Second, time.Second, time.Second
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
			x := f.send(address(1))
			f.wait(x, events.EmailDelayed)
			a := f.attempts(x)[0]
			if a.Outcome != c.outcome || !strings.HasPrefix(a.Reply, c.reply) || a.NextAt.IsZero() || a.Conversation == "" {
				t.Errorf("attempt %+v", a)
			}
			if len(a.Conversation) > conversationMax {
				t.Errorf("the conversation has %d bytes", len(a.Conversation))
			}
		})
	}
}

func TestDeliverOverAConnectionThatWasClosed(t *testing.T) {
	t.Parallel()
	message := "C: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\nC: DATA\nS: 354 go\n(data)\nS: 250 ok\n"
	opening := "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\n"
	p := smtptest.Script(t, opening+message+"(drop)\n(next)\n"+opening+message+"(drop)\n")
	n := one(p.Addr)
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	x := f.send(address(2))
	if got := f.wait(x, events.EmailDelivered); !slices.Equal(got, []string{"sent", "delivered to2@example.net"}) {
		t.Errorf("a connection that the host had closed led to %q", got)
	}
	if a := f.attempts(x); len(a) != 1 {
		t.Errorf("%d attempts", len(a))
	}
}

func TestDeliverThroughRelay(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	relay := smtptest.NewServer(t, smtptest.Config{TLS: ca.ServerTLS("127.0.0.1"),
		Users: map[string]string{"user": "secret"}})
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, Relays: login(relay, "user", "secret"),
		RootCAs: ca.Pool(), LaneConnections: 2}, resolve.Fake{})
	f.service.shape.silence = time.Hour // a slow machine earns the relay no more connections
	f.run()
	var ids []string
	for i := range 10 {
		ids = append(ids, f.send("a@example"+string(rune('a'+i))+".net"))
	}
	for _, x := range ids {
		f.wait(x, events.EmailDelivered)
	}
	if relay.Connections() > 2 || relay.Messages()[0].User != "user" || !relay.Messages()[0].TLS {
		t.Errorf("%d connections, message %+v", relay.Connections(), relay.Messages()[0])
	}
	if conversation := f.attempts(ids[0])[0].Conversation; strings.Contains(conversation, "secret") {
		t.Errorf("the conversation tells the password:\n%s", conversation)
	}
}

// A domain that enforces TLS also enforces it for a relay on this machine, unless the operator disables TLS.
func TestDeliverEnforcedThroughALocalRelay(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	for _, c := range []struct {
		name   string
		server smtptest.Config
		tls    smtpclient.TLSMode
		want   events.Type
		secure bool
	}{
		{"no TLS", smtptest.Config{}, smtpclient.TLSOpportunistic, events.EmailDelayed, false},
		{"another's certificate", smtptest.Config{TLS: ca.ServerTLS("other.test")}, smtpclient.TLSOpportunistic,
			events.EmailDelayed, false},
		{"its certificate", smtptest.Config{TLS: ca.ServerTLS("127.0.0.1")}, smtpclient.TLSOpportunistic,
			events.EmailDelivered, true},
		{"none is written", smtptest.Config{TLS: ca.ServerTLS("127.0.0.1")}, smtpclient.TLSNone, events.EmailDelivered,
			false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			relay := smtptest.NewServer(t, c.server)
			f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay,
				Relays:   []routing.Relay{{Name: unnamedRelay, Address: relay.Addr, TLS: c.tls}},
				RootCAs:  ca.Pool(),
				Schedule: []time.Duration{time.Hour}}, resolve.Fake{})
			enforced := domains.Enforced
			if err := f.Domains.Update(t.Context(), f.Acme.TeamID, f.Sender.ID, domains.Change{TLS: &enforced}); err != nil {
				t.Fatal(err)
			}
			f.run()
			x := f.send(address(1))
			f.wait(x, c.want)
			if got := relay.Messages(); len(got) > 0 != (c.want == events.EmailDelivered) || len(got) > 0 &&
				got[0].TLS != c.secure {
				t.Errorf("messages %+v", got)
			}
			if a := f.attempts(x)[0]; c.want == events.EmailDelayed && !strings.HasPrefix(a.Reply, "454 4.7.") {
				t.Errorf("attempt %+v", a)
			}
		})
	}
}

func TestDeliverWithWrongPassword(t *testing.T) {
	t.Parallel()
	relay := smtptest.NewServer(t, smtptest.Config{Users: map[string]string{"user": "secret"}})
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, Relays: login(relay, "user", "wrong")}, resolve.Fake{}).run()
	x := f.send(address(1))
	f.wait(x, events.EmailDelayed) // with a wrong relay password, emails are delayed but do not fail
	if a := f.attempts(x)[0]; !strings.HasPrefix(a.Reply, "535") || a.NextAt.IsZero() {
		t.Errorf("attempt %+v", a)
	}
}
