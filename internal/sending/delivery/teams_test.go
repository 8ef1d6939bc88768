package delivery

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// gate blocks callers until it is opened, and counts the callers that are waiting.
type gate struct {
	open chan struct{}

	mu      sync.Mutex
	waiting int
	most    int
	news    chan struct{}
}

func newGate(t *testing.T) *gate {
	g := &gate{open: make(chan struct{}), news: make(chan struct{})}
	t.Cleanup(sync.OnceFunc(func() {
		select {
		case <-g.open:
		default:
			close(g.open)
		}
	}))
	return g
}

func (g *gate) step(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting += n
	g.most = max(g.most, g.waiting)
	close(g.news)
	g.news = make(chan struct{})
}

// highest returns the maximum number of callers that waited at the same time.
func (g *gate) highest() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.most
}

// pass waits until the gate is opened or done is closed.
func (g *gate) pass(done <-chan struct{}) {
	g.step(1)
	defer g.step(-1)
	select {
	case <-g.open:
	case <-done:
	}
}

// full waits until n callers are blocked at the gate.
func (g *gate) full(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		g.mu.Lock()
		waiting, news := g.waiting, g.news
		g.mu.Unlock()
		if waiting >= n {
			return
		}
		select {
		case <-news:
		case <-deadline:
			t.Fatalf("%d hang, want %d", waiting, n)
		}
	}
}

// hostile returns a network with 200 domains, whose hosts all block at the gate in the given way, and with a working
// host for the usual destination. In the returned configuration, the wait before the second try is one hour.
func hostile(t *testing.T, way string, addresses int, g *gate) (n *network, cfg Config) {
	t.Helper()
	good := smtptest.NewServer(t, smtptest.Config{})
	n = one(good.Addr)
	ended := make(chan struct{})
	addr := ""
	switch way {
	case "never greets", "drips":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var open sync.WaitGroup
		open.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				open.Go(func() {
					defer c.Close()
					gone := make(chan struct{})
					open.Go(func() { io.Copy(io.Discard, c); close(gone) })
					if way == "drips" {
						open.Go(func() { drip(c, gone) })
					}
					g.pass(gone)
				})
			}
		})
		t.Cleanup(func() { l.Close(); open.Wait() })
		addr = l.Addr().String()
	case "stalls after the message":
		addr = smtptest.NewServer(t, smtptest.Config{Data: func(smtptest.Message) string { g.pass(ended); return "" }}).Addr
	case "stalls after RCPT":
		addr = smtptest.NewServer(t, smtptest.Config{Rcpt: func(string, string) string { g.pass(ended); return "" }}).Addr
	}
	t.Cleanup(func() { close(ended) })
	bad := map[string]bool{}
	for i := range 200 {
		ip := netip.AddrFrom4([4]byte{10, 1, 0, byte(i % addresses)})
		name := fmt.Sprint("mx", i, ".evil.test")
		n.dns.MXRecords[domainOf(i)] = []resolve.MX{{Host: name, Pref: 10}}
		n.dns.AddrRecords[name] = []netip.Addr{ip}
		key := netip.AddrPortFrom(ip, 25).String()
		n.hosts[key], n.names[key], bad[key] = addr, name, true
	}
	cfg = n.config(1)
	cfg.Schedule = []time.Duration{time.Hour}
	cfg.Dial = func(ctx context.Context, network, to string) (net.Conn, error) {
		if bad[to] && addr == "" { // never accepts
			g.pass(ctx.Done())
			return nil, context.Cause(ctx)
		}
		return n.dial(ctx, network, to)
	}
	return n, cfg
}

// hanging returns a network, a configuration for it and a switch. Once the switch is on, the destination's host blocks
// at the gate for messages that contain the given string.
func hanging(t *testing.T, text string, g *gate) (n *network, cfg Config, hangs *atomic.Bool) {
	t.Helper()
	ended := make(chan struct{})
	hangs = new(atomic.Bool)
	mx := smtptest.NewServer(t, smtptest.Config{Data: func(m smtptest.Message) string {
		if hangs.Load() && strings.Contains(string(m.Data), text) {
			g.pass(ended)
		}
		return ""
	}})
	t.Cleanup(func() { close(ended) })
	n = one(mx.Addr)
	return n, n.config(1), hangs
}

// drip sends a very long greeting, one byte every 20 ms.
func drip(c net.Conn, gone <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, octet := range []byte("220-" + strings.Repeat(".", 1500)) {
		select {
		case <-gone:
			return
		case <-tick.C:
			c.Write([]byte{octet})
		}
	}
}

func domainOf(i int) string { return fmt.Sprint("d", i%200, ".evil.test") }

// If all hosts for a team's mail hang, the team uses only its share of the connections, and another team's email is
// still sent.
func TestSilentHostsHoldUpTheirTeamAlone(t *testing.T) {
	for _, way := range []string{"never accepts", "never greets", "stalls after the message"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			each := func(t *testing.T, f func(*testing.T, *db.DB)) { f(t, dbtest.SQLite(t)) }
			if way == "never accepts" {
				each = dbtest.Each
			}
			each(t, func(t *testing.T, d *db.DB) {
				g := newGate(t)
				n, cfg := hostile(t, way, 200, g)
				cfg.MaxConnections, cfg.Workers, cfg.LaneConnections = 40, 40, 1
				cfg.Timeouts.Connect, cfg.Timeouts.Greeting, cfg.Timeouts.Final = time.Hour, time.Hour, time.Hour
				f := newFixture(t, d, cfg, n.dns)
				f.service.shortGreeting = time.Hour
				f.flood(f.TeamOf("evil.dev"), "evil.dev", 400, func(i int) string { return fmt.Sprintf("a%d@%s", i, domainOf(i)) })
				f.run()
				g.full(t, 26) // 3/4 of 7/8 of all 40 connections, because no host has answered yet
				f.wait(f.send(address(1)), events.EmailDelivered)
				g.full(t, 26)
				if g.highest() > 26 || f.count(events.EmailDelivered) != 1 || f.count(events.EmailDelayed) != 0 {
					t.Errorf("%d connections hung at once, %d emails were delivered and %d delayed", g.highest(),
						f.count(events.EmailDelivered),
						f.count(events.EmailDelayed))
				}
			})
		})
	}
}

// One connection is enough to detect that an address does not answer. The result applies to all domains whose mail goes
// to the address.
func TestSilentHostsAreFoundOutOnce(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	n, cfg := hostile(t, "never accepts", 40, g)
	var mu sync.Mutex
	dials := map[string]int{}
	cfg.Dial = func(_ context.Context, network, to string) (net.Conn, error) {
		mu.Lock()
		dials[to]++
		mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: network, Err: context.DeadlineExceeded}
	}
	f := newFixture(t, dbtest.SQLite(t), cfg, n.dns)
	f.service.hosts.backoffFirst = backoffFirst
	f.flood(f.TeamOf("evil.dev"), "evil.dev", 400, func(i int) string { return fmt.Sprintf("a%d@%s", i, domainOf(i)) })
	f.run()
	f.await(events.EmailDelayed, 400)
	mu.Lock()
	defer mu.Unlock()
	for to, times := range dials {
		if times != 1 {
			t.Errorf("%s was dialled %d times", to, times)
		}
	}
	if len(dials) != 40 {
		t.Errorf("%d addresses were dialled, want 40", len(dials))
	}
}

// If a destination stalls for one team's messages, another team still gets a slot at the destination.
func TestTeamsShareADestination(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		g := newGate(t)
		n, cfg, hangs := hanging(t, "evil.dev", g)
		cfg.LaneConnections = 4
		f := newFixture(t, d, cfg, n.dns)
		evil := f.TeamOf("evil.dev")
		f.flood(evil, "evil.dev", 20, address)
		f.run()
		f.await(events.EmailDelivered, 20)
		hangs.Store(true)
		f.flood(evil, "evil.dev", 100, address)
		g.full(t, 3)
		f.wait(f.send(address(1)), events.EmailDelivered)
		f.wait(f.send(address(2)), events.EmailDelivered)
		if g.highest() != 3 || f.count(events.EmailDelivered) != 22 {
			t.Errorf("%d places were taken by the other team, %d emails delivered", g.highest(), f.count(events.EmailDelivered))
		}
	})
}

// If a team has used up its share of memory, its jobs wait before they load their emails. Other teams' jobs do not
// wait.
func TestMemoryIsTakenBeforeAnEmailIsRead(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		evil := f.TeamOf("evil.dev")
		f.flood(evil, "evil.dev", 50, address)
		// Older releases wrote jobs without a size.
		if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET payload = REPLACE(payload, '"size"', '"former"') WHERE lane <> ''`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !f.service.memory.TryAcquire(evil.TeamID, memory/2) {
			t.Fatal("a team may not have half of all")
		}
		if room := f.service.memory.Available(f.Acme.TeamID); room < 64<<20 {
			t.Errorf("a newcomer finds room for %d bytes, and an email may need more", room)
		}
		f.run()
		f.wait(f.send(address(1)), events.EmailDelivered)
		if n := f.count(events.EmailDelivered); n != 1 {
			t.Errorf("%d emails were delivered", n)
		}
		f.service.memory.Release(evil.TeamID, memory/2)
		f.await(events.EmailDelivered, 51)
		held := func() int64 { return f.service.memory.Held(evil.TeamID) + f.service.memory.Held(f.Acme.TeamID) }
		for deadline := time.Now().Add(10 * time.Second); held() != 0; time.Sleep(time.Millisecond) {
			// The memory is released after the handlers have returned.
			if time.Now().After(deadline) {
				t.Fatalf("%d bytes are held for ever", held())
			}
		}
	})
}

// The email size in a job's payload is equal to the size computed from the email's row.
func TestSizeIsKnownBefore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Config{}, resolve.Fake{})
		text := strings.Repeat("ä", 1000)
		x := f.Send(emails.Send{From: "a@" + from, To: []string{address(1)}, Subject: "x", Text: &text, HTML: &text,
			Attachments: []emails.Upload{{Filename: "a.bin", Content: make([]byte, 10_000), HasContent: true}}})
		var payload, lane string
		if err := d.QueryRow(t.Context(), `SELECT payload, lane FROM jobs WHERE kind = $1`,
			emails.DeliveryKind).Scan(&payload, &lane); err != nil {
			t.Fatal(err)
		}
		job, err := emails.DecodeDelivery(payload, lane)
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Emails.Size(t.Context(), f.Acme.TeamID, x)
		if err != nil || size != job.Size || size < 2*4000+25_000 {
			t.Errorf("size %d by the row, %d by the job, %v", size, job.Size, err)
		}
	})
}
