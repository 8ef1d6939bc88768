package delivery

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// A team's mail to responsive hosts is sent while thirty of its destinations stall. Each stalling destination occupies
// a single connection, no matter how much mail waits for it.
func TestStallingHostsHoldUpNoOtherMailOfTheirTeam(t *testing.T) {
	for _, way := range []string{"never accepts", "never greets", "stalls after the message", "stalls after RCPT",
		"drips"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			each := func(t *testing.T, f func(*testing.T, *db.DB)) { f(t, dbtest.SQLite(t)) }
			if way == "stalls after the message" {
				each = dbtest.Each
			}
			each(t, func(t *testing.T, d *db.DB) {
				g := newGate(t)
				n, cfg := hostile(t, way, 200, g)
				cfg.MaxConnections, cfg.Workers, cfg.LaneConnections = 60, 60, 20
				cfg.Timeouts.Connect, cfg.Timeouts.Greeting, cfg.Timeouts.Command, cfg.Timeouts.Final = time.Hour, time.Hour,
					time.Hour, time.Hour
				f := newFixture(t, d, cfg, n.dns)
				f.service.shortGreeting = time.Hour
				f.flood(f.Acme, from, 600, func(i int) string { return fmt.Sprintf("a%d@%s", i, domainOf(i%30)) })
				f.run()
				g.full(t, 30)
				f.wait(f.send(address(1)), events.EmailDelivered)
				f.flood(f.Acme, from, 100, address)
				f.await(events.EmailDelivered, 101)
				g.full(t, 30)
				if g.highest() > 30 || f.count(events.EmailDelayed) != 0 {
					t.Errorf("%d connections hung at once, %d emails were delayed", g.highest(), f.count(events.EmailDelayed))
				}
			})
		})
	}
}

// An address gets a single connection until it answers, no matter how many destinations use it. If the address stalls,
// messages that wait for it are delayed until their next try.
func TestStallingAddressOfManyDestinations(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := newGate(t)
		n, cfg := hostile(t, "stalls after the message", 1, g)
		cfg.LaneConnections = 20
		f := newFixture(t, d, cfg, n.dns)
		f.service.hosts.patience = 50 * time.Millisecond
		f.flood(f.Acme, from, 200, func(i int) string { return "a@" + domainOf(i) })
		f.run()
		f.await(events.EmailDelayed, 199)
		g.full(t, 1)
		if g.highest() != 1 || f.count(events.EmailDelivered) != 0 {
			t.Errorf("%d conversations hung at one address", g.highest())
		}
	})
}

// If destinations that already have many connections stall, some connections remain for other destinations.
func TestDestinationsThatBeginToStall(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	var hangs atomic.Bool
	ended := make(chan struct{})
	mx := smtptest.NewServer(t, smtptest.Config{Data: func(m smtptest.Message) string {
		if hangs.Load() {
			g.pass(ended)
		}
		return ""
	}})
	t.Cleanup(func() { close(ended) })
	n := one(smtptest.NewServer(t, smtptest.Config{}).Addr)
	late := func(i int) string { return fmt.Sprintf("a%d@d%d.late.test", i, i%10) }
	for i := range 10 {
		n.host(fmt.Sprintf("d%d.late.test", i), fmt.Sprintf("mx%d.late.test", i), 10, mx.Addr)
	}
	cfg := n.config(1)
	cfg.LaneConnections, cfg.MaxConnections, cfg.Workers = 8, 60, 60
	cfg.Timeouts.Final = time.Hour
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns).run()
	f.flood(f.Acme, from, 20, address)
	f.flood(f.Acme, from, 200, late)
	f.await(events.EmailDelivered, 220)
	hangs.Store(true)
	f.flood(f.Acme, from, 400, late)
	g.full(t, 12)
	f.flood(f.Acme, from, 50, address)
	f.await(events.EmailDelivered, 270)
}

func TestWindow(t *testing.T) {
	t.Parallel()
	var f window
	now := time.Now()
	talk := func(n int, what response, took time.Duration) {
		for range n {
			f.begin(now)
		}
		now = now.Add(took)
		for range n {
			f.end(what, took, stallAfter, 20, now)
		}
	}
	for round, want := range []int{1, 2, 4, 8, 16, 20, 20} {
		if f.allowed() != want || f.doubt(now, stallAfter) != map[bool]jobs.Doubt{true: jobs.Unknown,
			false: jobs.Sure}[round == 0] {
			t.Fatalf("round %d: %d places, doubt %d", round, f.allowed(), f.doubt(now, stallAfter))
		}
		talk(want, replied, time.Second)
	}
	talk(1, unanswered, time.Second)
	if f.allowed() != 10 || f.doubt(now, stallAfter) != jobs.Sure {
		t.Errorf("%d places after a connection broke", f.allowed())
	}
	talk(3, untried, time.Hour)
	if f.allowed() != 10 {
		t.Errorf("%d places after nothing was tried", f.allowed())
	}
	for range 10 {
		f.begin(now)
	}
	now = now.Add(stallAfter - 1)
	if f.stalls(now, stallAfter) {
		t.Error("it stalls too early")
	}
	f.end(replied, stallAfter-1, stallAfter, 20, now)
	if now = now.Add(stallAfter - 1); f.stalls(now, stallAfter) {
		t.Error("it stalls although something moves")
	}
	if now = now.Add(1); !f.stalls(now, stallAfter) || f.doubt(now, stallAfter) != jobs.Stuck {
		t.Error("it does not stall")
	}
	for range 9 {
		f.end(unanswered, 2*stallAfter, stallAfter, 20, now)
	}
	if f.allowed() != 1 || f.doubt(now, stallAfter) != jobs.Stuck || f.stalls(now, stallAfter) {
		t.Errorf("%d places after it stalled, doubt %d", f.allowed(), f.doubt(now, stallAfter))
	}
	for round, want := range []int{1, 4, 16, 20, 20} { // each slow answer counts for more than a prompt answer
		if f.allowed() != want {
			t.Fatalf("round %d: %d places where answers take long, want %d", round, f.allowed(), want)
		}
		talk(want, replied, 2*stallAfter)
		if f.doubt(now, stallAfter) != jobs.Unknown {
			t.Errorf("round %d: doubt %d where answers take long", round, f.doubt(now, stallAfter))
		}
	}
	f.begin(now) // the host gets twice the time that it took last
	if late := now.Add(4 * stallAfter); f.stalls(late.Add(-1), stallAfter) || !f.stalls(late, stallAfter) {
		t.Error("a host that takes long stalls too early or too late")
	}
	f.end(replied, time.Second, stallAfter, 20, now)
	if f.doubt(now, stallAfter) != jobs.Sure || f.doubt(now.Add(reachableFor), stallAfter) != jobs.Unknown {
		t.Errorf("%d places once answers come soon", f.allowed())
	}
	talk(2, replied, time.Second)
	f.begin(now) // prompt answers make the host's time as short as before
	if !f.stalls(now.Add(stallAfter), stallAfter) {
		t.Error("a host that took long once is never stalled")
	}
	for range 2 {
		talk(1, replied, time.Hour)
	}
	f.begin(now)
	if f.stalls(now.Add(talkMax-1), stallAfter) || !f.stalls(now.Add(talkMax), stallAfter) {
		t.Error("the time of a host that takes an hour is not bounded")
	}
	f.end(unanswered, time.Hour, stallAfter, 20, now)
	if f.allowed() != 1 || f.doubt(now, stallAfter) != jobs.Stuck || f.usual != 0 {
		t.Errorf("%d places after a slow host stalled", f.allowed())
	}
}

// A host that exceeds the time limit for a conversation goes into backoff, as it does after a timeout. A conversation
// that this node cancels causes no backoff.
func TestStallUntilTheLimitOfATry(t *testing.T) {
	t.Parallel()
	for _, limit := range []bool{true, false} {
		p := smtptest.Script(t, "S: 220 mx.test\nC: EHLO *\nS: 250 mx.test\nC: MAIL *\n(stall)\n")
		s := newService(Config{Dial: new(net.Dialer).DialContext}, Deps{})
		ctx, cancel := context.WithCancel(t.Context())
		if limit {
			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
		} else {
			time.AfterFunc(2*time.Second, cancel)
		}
		to := smtpclient.Envelope{To: []string{address(1)}}
		out, _, _ := s.tryHost(ctx, hop{name: "mx.test", addr: p.Addr}, "team", to,
			[][]byte{[]byte("Subject: x\r\n\r\nx\r\n")})
		cancel()
		if _, ok := s.hosts.backoff(p.Addr, "team", time.Now()); ok != limit || (out.response == unanswered) != limit {
			t.Errorf("by our limit %v: left alone %v, heard %d", limit, ok, out.response)
		}
	}
}
