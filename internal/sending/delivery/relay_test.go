package delivery

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// relays returns relays without rules at the given addresses. The first one has no name of its own.
func relays(addrs ...string) (all []routing.Relay) {
	for i, addr := range addrs {
		r := routing.Relay{Name: unnamedRelay, Address: addr}
		if i > 0 {
			r.Name = fmt.Sprint("relay", i+1)
		}
		all = append(all, r)
	}
	return all
}

// login returns a relay that needs a password.
func login(s *smtptest.Server, user, password string) []routing.Relay {
	return []routing.Relay{{Name: unnamedRelay, Address: s.Addr, Username: user, Password: password}}
}

// closedPort returns an address at which nothing listens.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

const greeted250 = "S: 220 relay.test\nC: EHLO *\nS: 250 relay.test\n"

// If a relay does not take a message before it knows the recipients, the next relay gets the message in the same
// attempt, and later messages do not wait for the first relay again.
func TestRelaysInOrder(t *testing.T) {
	t.Parallel()
	greets := func(reply string) func(*testing.T) routing.Relay {
		return func(t *testing.T) routing.Relay {
			return routing.Relay{Address: smtptest.NewServer(t, smtptest.Config{Greet: func() string { return reply }}).Addr}
		}
	}
	plays := func(script string) func(*testing.T) routing.Relay {
		return func(t *testing.T) routing.Relay { return routing.Relay{Address: smtptest.Script(t, script).Addr} }
	}
	for _, c := range []struct {
		name  string
		first func(*testing.T) routing.Relay
		says  string // in the conversation
	}{
		{"down", func(t *testing.T) routing.Relay { return routing.Relay{Address: closedPort(t)} }, "connect"},
		{"421 at the greeting", greets("421 4.3.2 too busy"), "421 4.3.2 too busy"},
		{"554 at the greeting", greets("554 5.7.1 not you"), "554 5.7.1 not you"},
		{"hangs up", plays("(drop)\n"), "greeting: EOF"},
		{"refuses the password", func(t *testing.T) routing.Relay {
			s := smtptest.NewServer(t, smtptest.Config{Users: map[string]string{"user": "secret"}})
			return routing.Relay{Address: s.Addr, Username: "user", Password: "wrong"}
		}, "535"},
		{"offers no TLS", func(t *testing.T) routing.Relay {
			return routing.Relay{Address: smtptest.NewServer(t, smtptest.Config{}).Addr, TLS: smtpclient.TLSRequired}
		}, "TLS"},
		{"ends at MAIL", plays(greeted250 + "C: MAIL *\n(drop)\n"), "MAIL FROM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first := c.first(t)
			first.Name = "first"
			second := smtptest.NewServer(t, smtptest.Config{})
			f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, LaneConnections: 2,
				Relays: []routing.Relay{first, {Name: "second", Address: second.Addr}}}, resolve.Fake{})
			f.service.hosts.backoffFirst = time.Hour
			reports := make(chan Report, 2)
			f.service.p.Observe = func(r Report) { reports <- r }
			f.run()
			id := f.send(address(1))
			f.wait(id, events.EmailDelivered)
			if r := <-reports; r.Relay != "second" || r.Delivered != 1 {
				t.Errorf("report %+v", r)
			}
			a := f.attempts(id)
			if len(a) != 1 || a[0].Host != "127.0.0.1 [relay second]" || !strings.Contains(a[0].Conversation, c.says) {
				t.Fatalf("attempts %+v", a)
			}
			if e := f.evidence(id)[0]; e.Provider != evidence.Relay || e.Hosts != 2 {
				t.Errorf("evidence %+v", e)
			}
			if c.name == "ends at MAIL" {
				return // the relay has answered, so it does not rest; it plays one conversation
			}
			if _, resting := f.service.Pauses(); resting != 1 {
				t.Errorf("%d relays rest", resting)
			}
			if all := f.service.RestingRelays(); len(all) != 2 || !all["first"] || all["second"] {
				t.Errorf("resting relays: %v", all)
			}
			again := f.send(address(2))
			f.wait(again, events.EmailDelivered)
			if text := f.attempts(again)[0].Conversation; strings.Contains(text, c.says) && c.name != "down" {
				t.Errorf("the first relay was tried while it rests:\n%s", text)
			}
			if n := len(second.Messages()); n != 2 {
				t.Errorf("the second relay has %d messages", n)
			}
		})
	}
}

// After its rest, the first relay is used again.
func TestRelayAnswersAgain(t *testing.T) {
	t.Parallel()
	var busy atomic.Bool
	busy.Store(true)
	first := smtptest.NewServer(t, smtptest.Config{Greet: func() string {
		if busy.Load() {
			return "421 4.3.2 too busy"
		}
		return ""
	}})
	second := smtptest.NewServer(t, smtptest.Config{})
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, LaneConnections: 2,
		Relays: relays(first.Addr, second.Addr)}, resolve.Fake{}).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	busy.Store(false)
	id := f.send(address(2))
	f.wait(id, events.EmailDelivered)
	if len(first.Messages()) != 1 || len(second.Messages()) != 1 || f.attempts(id)[0].Host != "127.0.0.1 [127.0.0.1]" {
		t.Errorf("%d and %d messages, attempt %+v", len(first.Messages()), len(second.Messages()), f.attempts(id)[0])
	}
}

// A relay's rest is neither long nor the same on all nodes.
func TestRestOfARelay(t *testing.T) {
	t.Parallel()
	h, now := newHosts(20), time.Now()
	rests := map[time.Duration]bool{}
	for i := range 20 {
		r := routing.New(routing.Config{Relays: relays(fmt.Sprint("relay:", i))}).Default()
		for range 3 {
			h.claimDial(r.Key(), now)
			if what := h.endDial(r.Key(), noGreeting, answer{}, now); what != beganToFail {
				t.Fatalf("change %v", what)
			}
			rest := h.entries[r.Key()].until.Sub(now)
			if rest < backoffFirst*4/5 || rest > backoffFirst*6/5 || !h.failed(r.Key(), now) {
				t.Fatalf("a relay rests for %v", rest)
			}
			rests[rest] = true
			now = now.Add(rest)
		}
		if h.failed(r.Key(), now) {
			t.Error("a relay is passed over after its rest")
		}
		h.claimDial(r.Key(), now)
		if what := h.endDial(r.Key(), greeted, answer{}, now); what != answersAgain {
			t.Errorf("change %v", what)
		}
	}
	if len(rests) < 10 {
		t.Errorf("%d different rests", len(rests))
	}
}

// Answers about the message, and conversations that end when the relay may have the message, do not lead to another
// relay.
func TestNoOtherRelay(t *testing.T) {
	t.Parallel()
	const envelope = greeted250 + "C: MAIL *\nS: 250 ok\nC: RCPT *\nS: 250 ok\nC: DATA\nS: 354 go\n(data)\n"
	for _, c := range []struct {
		name, script, outcome string
		want                  events.Type
	}{
		{"ends after the final dot", envelope + "(drop)\n", "unknown", events.EmailDelayed},
		{"reset after the final dot", envelope + "(reset)\n", "unknown", events.EmailDelayed},
		{"451 to the message", envelope + "S: 451 4.3.0 later\n", "delayed", events.EmailDelayed},
		{"421 to the message", envelope + "S: 421 4.3.2 closing\n", "delayed", events.EmailDelayed},
		{"550 to the message", envelope + "S: 550 5.7.1 spam\n", "bounced", events.EmailBounced},
		{"451 to the recipient", greeted250 + "C: MAIL *\nS: 250 ok\nC: RCPT *\nS: 451 4.2.1 full\n", "delayed",
			events.EmailDelayed},
		{"550 to the recipient", greeted250 + "C: MAIL *\nS: 250 ok\nC: RCPT *\nS: 550 5.1.1 nobody\n", "bounced",
			events.EmailBounced},
		{"451 to the sender", greeted250 + "C: MAIL *\nS: 451 4.3.0 later\n", "delayed", events.EmailDelayed},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			first, second := smtptest.Script(t, c.script), smtptest.NewServer(t, smtptest.Config{})
			f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, LaneConnections: 2,
				Relays: relays(first.Addr, second.Addr), Schedule: []time.Duration{time.Hour, time.Hour}}, resolve.Fake{}).run()
			id := f.send(address(1))
			f.wait(id, c.want)
			if a := f.attempts(id); len(a) != 1 || a[0].Outcome != c.outcome {
				t.Errorf("attempts %+v", a)
			}
			if n := second.Connections(); n != 0 {
				t.Errorf("%d connections to the second relay", n)
			}
		})
	}
}

// Mail goes to the relays whose rules match, or else to the others, or, with the transport direct, to the recipients'
// hosts.
func TestRulesOfRelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, transport string
		domains, from   []string
		to, want        string
	}{
		{"recipient", Direct, []string{"corp.example"}, nil, "a@corp.example", "rule"},
		{"subdomain", Direct, []string{"*.corp.example"}, nil, "a@x.y.corp.example", "rule"},
		{"not the domain itself", Direct, []string{"*.example.net"}, nil, "a@example.net", "host"},
		{"another recipient", Direct, []string{"corp.example"}, nil, "a@example.net", "host"},
		{"sender", Direct, nil, []string{from}, "a@example.net", "rule"},
		{"another sender", Direct, nil, []string{"other.example"}, "a@example.net", "host"},
		{"both", Direct, []string{"corp.example"}, []string{from}, "a@corp.example", "rule"},
		{"one of both", Direct, []string{"corp.example"}, []string{from}, "a@example.net", "host"},
		{"recipient, else the relay", Relay, []string{"corp.example"}, nil, "a@corp.example", "rule"},
		{"the relay", Relay, []string{"corp.example"}, nil, "a@example.net", "plain"},
		{"a sender, else the relay", Relay, nil, []string{"*.other.example"}, "a@corp.example", "plain"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			rule, plain := smtptest.NewServer(t, smtptest.Config{}), smtptest.NewServer(t, smtptest.Config{})
			host := smtptest.NewServer(t, smtptest.Config{})
			n := one(host.Addr)
			cfg := n.config(1)
			cfg.Transport, cfg.Dial = c.transport, n.dialOr
			cfg.Relays = []routing.Relay{{Name: "plain", Address: plain.Addr},
				{Name: "rule", Address: rule.Addr, Domains: c.domains, From: c.from}}
			f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
			f.wait(f.send(c.to), events.EmailDelivered)
			for name, s := range map[string]*smtptest.Server{"rule": rule, "plain": plain, "host": host} {
				if got := len(s.Messages()); (got == 1) != (name == c.want) {
					t.Errorf("%s has %d messages", name, got)
				}
			}
		})
	}
}

// dialOr is like dial, but connects to addresses that are not of this network as they are.
func (n *network) dialOr(ctx context.Context, network, addr string) (net.Conn, error) {
	if _, known := n.names[addr]; known {
		return n.dial(ctx, network, addr)
	}
	return new(net.Dialer).DialContext(ctx, network, addr)
}

// With the transport direct, mail to the relay of a rule has the limits of a relay, and other mail those of its
// destination. A message of a sender's rule leaves the group of its lane for the relay's.
func TestGroupsOfRules(t *testing.T) {
	t.Parallel()
	s := newService(Config{Transport: Direct, LaneConnections: 3, MaxConnections: 40, Relays: []routing.Relay{
		{Name: "corp", Address: "relay:25", Domains: []string{"corp.example"}},
		{Name: "mine", Address: "relay:25", From: []string{"mine.example"}}}}, Deps{})
	for group, want := range map[string]routing.Limits{"relay corp": {Connections: 40, First: 3},
		"example.net": {Connections: 3}} {
		if got := s.shape.limitsOf(group); got != want {
			t.Errorf("%s: %+v", group, got)
		}
	}
	if got := s.group("corp.example|team"); got != "relay corp" {
		t.Errorf("the group is %q", got)
	}
	w, err := s.choose(t.Context(), "corp.example", "mine.example", "", nil)
	if err != nil || w.group != "relay corp mine" || len(w.hops) != 2 || !w.relays || w.hops[0].at() == w.hops[1].at() {
		t.Errorf("%+v, %v", w, err)
	}
}

// If the name of a relay cannot be looked up, the next relay gets the message.
func TestNameOfOneRelay(t *testing.T) {
	t.Parallel()
	second := smtptest.NewServer(t, smtptest.Config{})
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if strings.HasPrefix(addr, "relay.test:") {
			return nil, &net.OpError{Op: "dial", Net: network, Err: &net.DNSError{Err: "server misbehaving", Name: "relay.test",
				IsTemporary: true}}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, Dial: dial, LaneConnections: 2,
		Relays: relays("relay.test:25", second.Addr)}, resolve.Fake{}).run()
	id := f.send(address(1))
	f.wait(id, events.EmailDelivered)
	if a := f.attempts(id)[0]; !strings.Contains(a.Conversation, "server misbehaving") {
		t.Errorf("attempt %+v", a)
	}
}

// A message that is sent without the queue goes by the rules too, however its address is written.
func TestRulesOfUnqueuedMessages(t *testing.T) {
	t.Parallel()
	mx, relay := smtptest.NewServer(t, smtptest.Config{}), smtptest.NewServer(t, smtptest.Config{})
	f := withDestinations(t, dbtest.SQLite(t), mx)
	f.service.Apply(Config{Relays: []routing.Relay{{Name: "corp", Address: relay.Addr, Domains: []string{destination},
		From: []string{from}}}})
	message := []byte("From: a@" + from + "\r\nTo: ann@" + destination + "\r\nMessage-ID: <x@y>\r\n\r\nFull.\r\n")
	f.Must(f.service.SendUnqueued(t.Context(), f.Acme.TeamID, "a@"+strings.ToUpper(from),
		"ann@"+strings.ToUpper(destination), message))
	if len(relay.Messages()) != 1 || len(mx.Messages()) != 0 {
		t.Errorf("the relay has %d messages, and the host %d", len(relay.Messages()), len(mx.Messages()))
	}
}

// Connections to a relay are not used any more after its settings have changed.
func TestRelayChanges(t *testing.T) {
	t.Parallel()
	first, second := smtptest.NewServer(t, smtptest.Config{}), smtptest.NewServer(t, smtptest.Config{})
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, LaneConnections: 2, Relays: relays(first.Addr)},
		resolve.Fake{}).run()
	f.wait(f.send(address(1)), events.EmailDelivered)
	f.service.Apply(Config{Relays: relays(second.Addr)})
	f.wait(f.send(address(2)), events.EmailDelivered)
	if len(first.Messages()) != 1 || len(second.Messages()) != 1 {
		t.Errorf("%d and %d messages", len(first.Messages()), len(second.Messages()))
	}
}
