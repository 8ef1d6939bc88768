package nodelimits

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	kind  = "places"
	every = 20 * time.Millisecond

	// A long wait ensures that nodes wait for an exchange even on a busy machine. With a shorter wait, nodes might use an
	// even share, which may exceed the free part of the limit.
	long = time.Minute
)

// cluster is a set of nodes that use the same database and share one limit. A cluster counts the slots that its nodes
// acquire and release.
type cluster struct {
	t     *testing.T
	d     *db.DB
	limit int
	wait  time.Duration // maximum wait for the first exchange about a key

	mu    sync.Mutex
	nodes map[string]*user
	most  int           // maximum number of slots that were in use at the same time
	news  chan struct{} // closed when a slot is acquired or released, or when a share changes
}

// user is a node that acquires as many slots as it wants, up to its share.
type user struct {
	*Shares
	c     *cluster
	name  string
	want  int
	slow  bool // releases nothing
	used  int
	share int
	stop  func()

	others sync.Map // shares for names other than k
}

func newCluster(t *testing.T, d *db.DB, limit int, names ...string) *cluster {
	t.Helper()
	return newClusterThatWaits(t, d, long, limit, names...)
}

func newClusterThatWaits(t *testing.T, d *db.DB, wait time.Duration, limit int, names ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, d: d, limit: limit, wait: wait, nodes: map[string]*user{}, news: make(chan struct{})}
	for _, name := range names {
		c.add(name, d)
	}
	for _, u := range c.nodes {
		u.Live(len(names))
	}
	return c
}

// add starts another node, which does not yet know how many nodes exist.
func (c *cluster) add(name string, d *db.DB) *user {
	c.t.Helper()
	c.exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, 0)`, nodeID(name))
	u := &user{c: c, name: name, Shares: New(d, string(nodeID(name)), slog.New(slog.DiscardHandler), every)}
	u.wait = c.wait
	u.Register(kind, Places{
		Limit: func(string) int { return c.limit },
		Use: func(string) (int, int) {
			c.mu.Lock()
			defer c.mu.Unlock()
			return u.want, u.used
		},
		Changed: func(name string, n int) {
			if name == "k" {
				c.set(u, n)
			} else {
				u.others.Store(name, n)
			}
		},
		Busy: func() []string {
			c.mu.Lock()
			defer c.mu.Unlock()
			if u.used == 0 {
				return nil
			}
			return []string{"k"}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { u.Run(ctx) })
	u.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	c.t.Cleanup(u.stop)
	c.mu.Lock()
	c.nodes[name] = u
	c.mu.Unlock()
	return u
}

// nodeID returns the id of a node.
func nodeID(name string) db.ID { return db.ID(dbtest.ID(name)) }

func (c *cluster) exec(text string, args ...any) {
	c.t.Helper()
	err := c.d.Update(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), text, args...)
		return err
	})
	if err != nil {
		c.t.Fatal(err)
	}
}

// set sets a node's share.
func (c *cluster) set(u *user, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	u.share = n
	c.work(u)
}

// work acquires and releases slots until the node has as many as it wants, up to its share.
func (c *cluster) work(u *user) {
	if n := min(u.want, u.share); n > u.used || !u.slow {
		u.used = n
	}
	sum := 0
	for _, u := range c.nodes {
		sum += u.used
	}
	c.most = max(c.most, sum)
	close(c.news)
	c.news = make(chan struct{})
}

// wants sets how many slots a node wants.
func (c *cluster) wants(name string, n int) {
	c.t.Helper()
	c.mu.Lock()
	u := c.nodes[name]
	u.want = n
	c.mu.Unlock()
	share, known := u.Places(Key{kind, "k"}, c.limit)
	if !known {
		share = 0
	}
	c.set(u, share)
}

func (c *cluster) used() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	used := map[string]int{}
	for name, u := range c.nodes {
		used[name] = u.used
	}
	return used
}

// await waits until the nodes use the expected numbers of slots.
func (c *cluster) await(what string, ok func(used map[string]int) bool) {
	c.t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		c.mu.Lock()
		news := c.news
		c.mu.Unlock()
		if ok(c.used()) {
			return
		}
		select {
		case <-news:
		case <-deadline:
			rows, err := c.d.Query(context.Background(), `SELECT node, want, used, held FROM quotas ORDER BY node`)
			all, err := db.Collect(rows, err, func(r db.Row) (d demand, err error) {
				err = r.Scan((*db.ID)(&d.node), &d.want, &d.used, &d.held)
				return d, err
			})
			c.t.Fatalf("%s: they use %v; rows %+v, %v", what, c.used(), all, err)
		}
	}
}

// kept fails the test if more slots than the limit were in use at any time.
func (c *cluster) kept() {
	c.t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most > c.limit {
		c.t.Errorf("%d of %d places were in use at a time", c.most, c.limit)
	}
}

func sum(used map[string]int) (n int) {
	for _, u := range used {
		n += u
	}
	return n
}

// Three nodes with changing demands never exceed their common limit, and use the whole limit if they want that much.
func TestThreeNodesKeepOneLimit(t *testing.T) {
	t.Parallel()
	for _, limit := range []int{1, 2, 7, 20} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			t.Parallel()
			names := []string{"a", "b", "c"}
			c := newCluster(t, dbtest.Postgres(t), limit, names...)
			for range 10 {
				total := 0
				for _, name := range names {
					n := rand.IntN(2 * limit)
					if rand.IntN(3) == 0 {
						n = 0
					}
					total += n
					c.mu.Lock()
					c.nodes[name].slow = rand.IntN(2) == 0
					c.mu.Unlock()
					c.wants(name, n)
				}
				for _, name := range names { // slow nodes release their slots
					c.mu.Lock()
					u := c.nodes[name]
					u.slow = false
					c.work(u)
					c.mu.Unlock()
				}
				if total >= limit {
					all := func(used map[string]int) bool { return sum(used) >= limit }
					c.await(fmt.Sprintf("wanted are %d of %d", total, limit), all)
				}
			}
			c.kept()
		})
	}
}

// If the limit is one slot, each node that wants the slot gets it in turn.
func TestOnePlaceGoesAround(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 1, "a", "b", "c")
	for name := range c.nodes {
		c.wants(name, 5)
	}
	for name := range c.nodes {
		c.await(name+" has its turn", func(used map[string]int) bool { return used[name] == 1 })
	}
	c.kept()
}

// If a node no longer wants slots, or is dead, the other nodes get its share.
func TestSharesComeBack(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 20, "a", "b", "c")
	for name := range c.nodes {
		c.wants(name, 20)
	}
	even := func(used map[string]int) bool { return sum(used) == 20 && min(used["a"], used["b"], used["c"]) == 6 }
	c.await("all want all", even)
	c.wants("a", 0)
	c.await("one wants nothing", func(used map[string]int) bool { return used["b"] == 10 && used["c"] == 10 })
	c.wants("a", 1)
	c.await("one wants one", func(used map[string]int) bool { return used["a"] == 1 && used["b"]+used["c"] >= 18 })
	c.kept()

	c.nodes["c"].stop() // node c is declared dead, and the other nodes get its share
	c.mu.Lock()
	c.nodes["c"].used = 0
	c.mu.Unlock()
	c.exec(`DELETE FROM nodes WHERE id = $1`, nodeID("c"))
	c.wants("a", 20)
	for _, name := range []string{"a", "b"} {
		c.nodes[name].Live(2)
	}
	c.await("one is dead", func(used map[string]int) bool { return used["a"] == 10 && used["b"] == 10 })
	c.nodes["b"].stop()
	c.mu.Lock()
	c.nodes["b"].used = 0
	c.mu.Unlock()
	c.exec(`DELETE FROM nodes WHERE id = $1`, nodeID("b"))
	c.nodes["a"].Live(1)
	c.await("one is left", func(used map[string]int) bool { return used["a"] == 20 })
	c.kept()
	eventually(t, "the last node has no rows", func() bool { return c.rows() == 0 })
}

func (c *cluster) rows() (n int) {
	if err := c.d.QueryRow(context.Background(), `SELECT COUNT(*) FROM quotas`).Scan(&n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// eventually polls until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(every) {
		if time.Now().After(deadline) {
			t.Fatalf("not within half a minute: %s", what)
		}
	}
}

// If another node joins a node that uses all slots, both nodes get their shares.
func TestAnotherNodeComes(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 20, "a")
	c.wants("a", 20)
	if used := c.used(); used["a"] != 20 || c.rows() != 0 {
		t.Fatalf("a node alone has %d of 20 places, and %d rows", used["a"], c.rows())
	}
	c.nodes["a"].Live(2)
	eventually(t, "the other nodes know what it has", func() bool { return c.rows() == 1 })
	b := c.add("b", c.d)
	b.Live(2)
	c.wants("b", 20)
	c.await("both have half", func(used map[string]int) bool { return used["a"] == 10 && used["b"] == 10 })
	c.kept()
}

// If another node joins, the key's limit is divided, not the number of slots that the first node acquired while it was
// alone.
func TestBusyKeysKeepTheirLimit(t *testing.T) {
	t.Parallel()
	s := New(dbtest.Postgres(t), "a", slog.New(slog.DiscardHandler), time.Hour)
	s.Register(kind, Places{Limit: func(string) int { return 20 }, Use: func(string) (int, int) { return 3, 3 },
		Changed: func(string, int) {}, Busy: func() []string { return []string{"k"} }})
	s.Live(1)
	if n, _ := s.Places(Key{kind, "k"}, 20); n != 20 {
		t.Fatalf("alone it has %d", n)
	}
	s.Live(2)
	if e := s.entries[Key{kind, "k"}]; e == nil || e.limit != 20 {
		t.Errorf("the limit of 20 is entered as %+v", e)
	}
}

// A node that was declared dead has no share until it has read how much the other nodes hold.
func TestTakenForDead(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 20, "a", "b")
	c.wants("a", 20)
	c.await("one wants all", func(used map[string]int) bool { return used["a"] == 20 })
	c.exec(`DELETE FROM nodes WHERE id = $1`, nodeID("a"))
	c.mu.Lock()
	c.nodes["a"].used, c.nodes["a"].want = 0, 0 // node a is unsure of its jobs, so it begins no new work
	c.mu.Unlock()
	c.nodes["b"].Live(1)
	c.wants("b", 20)
	c.await("the other has all", func(used map[string]int) bool { return used["b"] == 20 })
	c.exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, 0)`, nodeID("a"))
	c.nodes["b"].Live(2)
	eventually(t, "the other has written what it has", func() bool {
		rows, err := c.nodes["a"].read(t.Context(), []string{kind + "/k"})
		all := func(d demand) bool { return d.node == string(nodeID("b")) && d.held == 20 }
		return err == nil && slices.ContainsFunc(rows[kind+"/k"], all)
	})
	c.nodes["a"].Live(0)
	c.nodes["a"].Live(2)
	c.wants("a", 20)
	c.await("both have half", func(used map[string]int) bool { return used["a"] == 10 && used["b"] == 10 })
	c.kept()
}

// While the database is unavailable, every node keeps its shares.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	d, p := dbtest.Proxied(t, time.Second)
	c := newClusterThatWaits(t, d, patience*every, 20, "a", "b")
	c.wants("a", 20)
	c.wants("b", 20)
	even := func(used map[string]int) bool { return used["a"] == 10 && used["b"] == 10 }
	c.await("both want all", even)
	p.Refuse()
	for range 2 { // an exchange may have been running when the outage began
		c.nodes["a"].failed(t)
	}
	if share, known := c.nodes["a"].Places(Key{kind, "k"}, 20); share != 10 || !known {
		t.Errorf("without the database the share is %d, %v", share, known)
	}
	if rate := c.nodes["a"].Rate(Key{"rate", "new"}, 10, 1); rate != 5 {
		t.Errorf("without the database a node has %v of a new rate", rate)
	}
	eventually(t, "a new key has an even share", func() bool {
		n, known := c.nodes["a"].Places(Key{kind, "new"}, 20)
		told, _ := c.nodes["a"].others.Load("new")
		return known && n == 10 && told == 10
	})
	if err := p.Pass(); err != nil {
		t.Fatal(err)
	}
	c.wants("b", 0)
	c.await("it goes on", func(used map[string]int) bool { return used["a"] == 20 })
	c.kept()
}

// failed waits until one of the node's exchanges has failed.
func (u *user) failed(t *testing.T) {
	t.Helper()
	before := u.failures.Load()
	eventually(t, "an exchange fails", func() bool { return u.failures.Load() > before })
}

// After lost answers, the table and the node's copy of its rows agree again.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	d, p := dbtest.Proxied(t, time.Second)
	c := newCluster(t, d, 20, "a", "b")
	for i := range 6 {
		p.LoseAnswers(1)
		c.wants("a", 20*(i%2))
		c.wants("b", 20)
		c.await("after a lost answer", func(used map[string]int) bool {
			return used["b"] == 20-10*(i%2) && used["a"] == 10*(i%2)
		})
	}
	c.kept()
}

// The run time of an exchange's queries does not depend on the number of rows for other keys.
func TestStatementsGoByIndexes(t *testing.T) {
	t.Parallel()
	trace := &dbtest.Trace{}
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.PostgresURL(t), MaxConns: 3, Trace: trace.Record})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	trace.SetDB(d)
	c := &cluster{t: t, d: d}
	c.exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, 0)`, nodeID("a"))
	trace.Take()
	s := New(d, string(nodeID("a")), slog.New(slog.DiscardHandler), time.Hour)
	s.Live(2)
	s.Rate(Key{"requests", "k"}, 10, 5)
	s.exchange(t.Context())
	s.entries[Key{"requests", "k"}].askedAt, s.entries[Key{"requests", "k"}].asked = time.Now().Add(-1000*time.Hour), false
	s.exchange(t.Context())
	s.Live(1)
	s.exchange(t.Context())
	all := trace.Take()
	for _, st := range all {
		if plan := trace.Plan(t, st); strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s reads all rows:\n%s", st.SQL, plan)
		}
	}
	if len(all) < 6 {
		t.Errorf("only %d statements were asked", len(all))
	}
}

func BenchmarkShare(b *testing.B) {
	s := New(dbtest.Postgres(b), "a", slog.New(slog.DiscardHandler), time.Hour)
	s.Live(3)
	key := Key{"requests", "0192f3a0-0000-7000-8000-000000000000"}
	s.Rate(key, 10, 1)
	s.entries[key].known, s.entries[key].share = true, 3
	b.ReportAllocs()
	for b.Loop() {
		s.Rate(key, 10, 1)
	}
}
