package delivery

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// slowHost is a mail host that holds its answer to each message until the test releases it.
type slowHost struct {
	*smtptest.Server
	holding chan struct{} // one value for each message that the host holds
	answer  chan struct{} // one value lets the host answer one message
	ended   chan struct{}
}

func newSlowHost(t *testing.T) *slowHost {
	h := &slowHost{holding: make(chan struct{}, 1000), answer: make(chan struct{}), ended: make(chan struct{})}
	h.Server = smtptest.NewServer(t, smtptest.Config{Data: func(smtptest.Message) string {
		h.holding <- struct{}{}
		select {
		case <-h.answer:
		case <-h.ended:
		}
		return ""
	}})
	t.Cleanup(func() { close(h.ended) })
	return h
}

// await waits until the host holds n more messages.
func (h *slowHost) await(t *testing.T, n int) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for i := range n {
		select {
		case <-h.holding:
		case <-deadline:
			t.Fatalf("the host holds %d messages more at once, want %d", i, n)
		}
	}
}

func (h *slowHost) release(n int) {
	for range n {
		h.answer <- struct{}{}
	}
}

// Twenty emails to a host that takes a minute for each of them are delivered in three minutes: each answer earns
// connections, no matter how long it took.
func TestSlowAnswersEarnConnections(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := newSlowHost(t)
		n := one(mx.Addr)
		cfg := n.config(1)
		cfg.LaneConnections = 20
		f := newFixture(t, d, cfg, n.dns)
		start, minutes := time.Now(), atomic.Int64{}
		f.service.shape.now = func() time.Time { return start.Add(time.Duration(minutes.Load()) * time.Minute) }
		f.flood(f.Acme, from, 20, address)
		f.run()
		for _, round := range []int{1, 4, 15} {
			mx.await(t, round)
			minutes.Add(1)
			mx.release(round)
		}
		f.await(events.EmailDelivered, 20)
		if f.count(events.EmailDelayed) != 0 {
			t.Errorf("%d emails were delayed", f.count(events.EmailDelayed))
		}
	})
}

// A relay gets as many connections as the node may have in total, even before it has answered a single message, and
// even if the lanes of its destinations may have only four. One team leaves an eighth of the connections free.
func TestSlowRelayGetsAllConnections(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		relay := newSlowHost(t)
		f := newFixture(t, d, Config{Transport: Relay, Relays: relays(relay.Addr), LaneConnections: 4, MaxConnections: 40},
			resolve.Fake{})
		f.service.p.OnLimitRaised = func(group string) { f.runner.LimitRaised(f.service.Kind().Name, group) }
		f.service.shape.onShareRaised = f.service.p.OnLimitRaised
		f.service.shape.silence = 10 * time.Millisecond
		f.service.shape.patience, f.service.hosts.patience = time.Nanosecond, time.Nanosecond // a relay never stalls
		f.flood(f.Acme, from, 70, func(i int) string { return fmt.Sprintf("a%d@d%d.test", i, i%7) })
		f.run()
		relay.await(t, 35)
		relay.release(35)
		relay.await(t, 35)
		relay.release(35)
		f.await(events.EmailDelivered, 70)
		if f.count(events.EmailDelayed) != 0 || relay.Connections() > 35 {
			t.Errorf("%d emails were delayed, %d connections", f.count(events.EmailDelayed), relay.Connections())
		}
	})
}

// A relay that answers promptly gets no more connections than another destination, and they are used again.
func TestPromptRelayNeedsFewConnections(t *testing.T) {
	t.Parallel()
	sink, err := smtpsink.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	f := newFixture(t, dbtest.SQLite(t), Config{Transport: Relay, Relays: relays(sink.Addr()), LaneConnections: 20,
		MaxConnections: 400}, resolve.Fake{})
	f.service.shape.silence = time.Hour // the machine may stop for a moment
	f.flood(f.Acme, from, 500, func(i int) string { return fmt.Sprintf("a%d@d%d.test", i, i%7) })
	f.run()
	f.await(events.EmailDelivered, 500)
	if sink.Connections() > 100 { // some more than 20 if the machine stops for a moment, because answers are then slow
		t.Errorf("%d connections for 500 messages", sink.Connections())
	}
}

// The number of useful connections to a relay follows the duration of most of its conversations.
func TestUsefulConnectionsOfARelay(t *testing.T) {
	t.Parallel()
	s := newShaper(20, 0)
	s.limitsOf = func(string) routing.Limits { return routing.Limits{Connections: 50, First: 4} }
	after := func(times int, what response, took time.Duration, want int) {
		t.Helper()
		for range times {
			s.learn("relay", outcome{response: what, took: took})
		}
		if n, _ := s.limit("relay", s.now()); n != want || s.entry("relay").useful != want {
			t.Errorf("%d connections are useful after %d conversations of %v, want %d", n, times, took, want)
		}
	}
	after(1, replied, relaySlow-1, 4)
	after(4, replied, relaySlow, 4)
	after(1, replied, relaySlow, 5)
	after(9, unanswered, time.Hour, 5)
	after(100, replied, time.Minute, 50)
	after(10, replied, relaySlow-1, 40)
	after(100, replied, 0, 4)
	if s.entry("relay").pace.slow != 0 {
		t.Errorf("%d slow conversations more than prompt ones", s.entry("relay").pace.slow)
	}
	h := s.entry("relay")
	for range 3 { // one connection of four is reserved
		if err := h.turns.Acquire(t.Context(), "team"); err != nil {
			t.Fatal(err)
		}
	}
	h.pace.ended = 7
	for _, c := range []struct {
		ended int
		grows bool
		want  int
	}{{6, false, 4}, {7, true, 8}, {7, false, 8}} { // eight connections are not in use yet
		if s.widen("relay", h, c.ended) != c.grows || h.useful != c.want {
			t.Errorf("%d connections are useful after a silence, want %d", h.useful, c.want)
		}
	}
	if other := newShaper(20, 0); other.entry("d").useful != 20 {
		t.Errorf("%d connections to a destination are useful", other.entry("d").useful)
	}
}
