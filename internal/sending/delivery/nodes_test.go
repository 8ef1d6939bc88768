package delivery

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/nodelimits"
	"github.com/postrider/postrider/internal/sending/emails"
)

// counter is a server that counts concurrent clients and forwards their commands to a sink. A client is no longer
// counted after it sends QUIT.
type counter struct {
	addr      string
	mu        sync.Mutex
	now, most int
}

func startCounter(t *testing.T, latency time.Duration) *counter {
	t.Helper()
	sink, err := smtpsink.Config{Latency: latency}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &counter{addr: l.Addr().String()}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		sink.Close()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { c.serve(client, sink.Addr()) })
		}
	})
	return c
}

func (c *counter) add(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now += n
	c.most = max(c.most, c.now)
}

func (c *counter) open() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *counter) peak() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.most
}

func (c *counter) serve(client net.Conn, sink string) {
	c.add(1)
	gone := sync.OnceFunc(func() { c.add(-1) })
	defer gone()
	defer client.Close()
	server, err := net.Dial("tcp", sink)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(client, server)
		client.Close()
	}()
	for r := bufio.NewReader(client); ; {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		if strings.EqualFold(strings.TrimSpace(line), "QUIT") {
			gone()
		}
		if _, err := io.WriteString(server, line); err != nil {
			return
		}
	}
}

// member is one of several nodes that deliver emails from one database.
type member struct {
	service *Service
	shares  *nodelimits.Shares
	dials   atomic.Int64
	stop    func()
}

// join starts another node on a fixture's database. The fixture's own runner must not run. The function join returns
// when the database has the given number of nodes.
func join(t *testing.T, f *fixture, c Config, nodes int) *member {
	t.Helper()
	m, log := &member{}, slog.New(slog.DiscardHandler)
	parts, dial := f.service.p, c.Dial
	runner := jobs.NewRunner(f.DB, f.Queue, log, time.Second)
	m.shares = nodelimits.New(f.DB, runner.Node(), log, 50*time.Millisecond)
	c.Hostname, c.Transport, c.AllowPrivate = "out.postrider.test", Direct, true
	c.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		m.dials.Add(1)
		return dial(ctx, network, addr)
	}
	parts.Shares = m.shares
	parts.OnLimitRaised = func(group string) { runner.LimitRaised(emails.DeliveryKind, group) }
	m.service = newService(c, parts)
	m.service.hosts.backoffFirst = 0
	runner.Handle(m.service.Kind())
	all := make(chan struct{})
	once := sync.OnceFunc(func() { close(all) })
	runner.OnNodes(func(n int) {
		m.shares.Live(n)
		if n >= nodes {
			once()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := runner.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() { m.shares.Run(ctx) })
	wg.Go(func() { m.service.Run(ctx) })
	m.stop = sync.OnceFunc(func() {
		cancel()
		wg.Wait()
		m.service.pool.prune(time.Now().Add(time.Hour))
	})
	t.Cleanup(m.stop)
	<-all
	return m
}

// Together, three nodes open no more connections to a destination than a single node may open. After one node stops,
// the same limit applies to the other two nodes.
func TestNodesKeepOneLimitOfConnections(t *testing.T) {
	t.Parallel()
	const limit, count = 6, 300
	server := startCounter(t, 10*time.Millisecond)
	n := one(server.addr)
	c := n.config(3)
	c.LaneConnections = limit
	f := newFixture(t, dbtest.Postgres(t), c, n.dns)
	f.quiet = true
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.DB.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	var members []*member
	for i := range 3 {
		members = append(members, join(t, f, c, i+1))
	}
	f.flood(f.Acme, from, count, address)
	f.await(events.EmailDelivered, count)
	for i, m := range members {
		if m.dials.Load() == 0 {
			t.Errorf("node %d has delivered nothing", i)
		}
	}
	members[2].stop()
	// The server may notice only later that the stopped node has closed its connections.
	testnode.Until(t, "the connections of the stopped node are closed", func() bool {
		return server.open() <= limit-limit/3
	})
	f.flood(f.Acme, from, count, address)
	f.await(events.EmailDelivered, 2*count)
	if most := server.peak(); most != limit {
		t.Errorf("at most %d connections at a time, want %d", most, limit)
	}
}

// A node without a share of the connections waits and continues when it receives a share.
func TestShareOfConnections(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	shares := nodelimits.New(d, "node", slog.New(slog.DiscardHandler), time.Hour)
	shares.Live(2)
	s, now := newShaper(8, 0), time.Now()
	s.useShares(shares, func(string) {})
	expect := func(what string, n int, wait time.Duration) {
		t.Helper()
		got, again := s.limit("d", now)
		if got != n || wait == 0 && !again.IsZero() || wait > 0 && again.Sub(now) != wait {
			t.Errorf("%s: %d jobs, again after %v", what, got, again.Sub(now))
		}
	}
	expect("before the share is known", 1, 0)
	s.shareChanged("d", 0)
	h := s.entry("d")
	if h.connections() != 0 || h.unknown {
		t.Errorf("without a share: %+v", h)
	}
	entered := make(chan slot)
	go func() {
		at, err := s.acquire(context.WithoutCancel(t.Context()), "d", "team", "team")
		if err != nil {
			t.Error(err)
		}
		entered <- at
	}()
	for want := 0; want == 0; { // until it waits
		want, _ = s.demand("d")
	}
	if _, held := s.demand("d"); held != 0 {
		t.Errorf("%d connections without a share", held)
	}
	s.shareChanged("d", 2)
	at := <-entered
	if want, held := s.demand("d"); want != 1 || held != 1 {
		t.Errorf("with one message under way %d are wanted and %d held", want, held)
	}
	if busy := s.busy(); len(busy) != 1 || busy[0] != "d" {
		t.Errorf("there are connections to %q", busy)
	}
	s.shareChanged("d", 0)
	if want, held := s.demand("d"); want != 1 || held != 1 {
		t.Errorf("the share is gone, and %d are wanted and %d held", want, held)
	}
	at.release(true, replied)
	if want, held := s.demand("d"); want != 0 || held != 0 {
		t.Errorf("after all %d are wanted and %d held", want, held)
	}
	for range 2 {
		s.recordVerdicts("d", throttled, time.Second, now)
	}
	s.shareChanged("d", 8)
	if got := s.entry("d").connections(); got != 4 {
		t.Errorf("a host that asks for less gets %d connections", got)
	}
}

// Destinations with the same address use a single share of its connections, and idle connections count against that
// share.
func TestShareOfAnAddress(t *testing.T) {
	t.Parallel()
	shares := nodelimits.New(dbtest.Postgres(t), "node", slog.New(slog.DiscardHandler), time.Hour)
	shares.Live(2)
	h, p, now := newHosts(8), newPool(10, 10), time.Now()
	h.useShares(shares, p)
	may, news, _ := h.begin("a", "team", now)
	if may || news == nil {
		t.Fatal("a conversation began before the share was known")
	}
	if want, held := h.demand("a"); want != 1 || held != 0 {
		t.Errorf("%d are wanted and %d held", want, held)
	}
	h.shareChanged("a", 0)
	select {
	case <-news:
		t.Fatal("it is to ask again, without a share")
	default:
	}
	h.shareChanged("a", 1)
	<-news
	h.entries["a"].talking++
	if busy := h.busy(); len(busy) != 1 || busy[0] != "a" {
		t.Errorf("there are connections to %q", busy)
	}
	if want, held := h.demand("a"); want != 1 || held != 1 {
		t.Errorf("in a conversation %d are wanted and %d held", want, held)
	}
	h.end("a", "team", replied, 0, now)
}

// A node whose share is half of a rate limit sends half as many messages. The node soon checks its share again, because
// the share may have grown.
func TestShareOfTheRate(t *testing.T) {
	t.Parallel()
	shares := nodelimits.New(dbtest.Postgres(t), "node", slog.New(slog.DiscardHandler), time.Hour)
	shares.Live(2)
	s, now := newShaper(10, .5), time.Now()
	s.useShares(shares, func(string) {})
	began := 0
	for tick := range 400 { // of 100 ms
		at := now.Add(time.Duration(tick) * 100 * time.Millisecond)
		n, again := s.limit("d", at)
		if n == 0 {
			if wait := again.Sub(at); wait <= 0 || wait > shareWait {
				t.Fatalf("it is to ask again after %v", wait)
			}
			continue
		}
		s.mu.Lock() // one message is sent
		h := s.entry("d")
		h.tokens--
		h.started++
		s.mu.Unlock()
		began++
	}
	if began < 10 || began > 12 {
		t.Errorf("%d messages in 40 seconds at half of 0.5 a second", began)
	}
}
