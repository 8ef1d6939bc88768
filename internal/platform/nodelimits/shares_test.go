package nodelimits

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The nodes' rates add up to the limit, and a node that wants little leaves the remainder to the other nodes.
func TestRates(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 1, "a", "b", "c")
	key := Key{"requests", "team"}
	ask := func(wants map[string]float64) (shares map[string]float64, sum float64) {
		shares = map[string]float64{}
		for name, w := range wants {
			shares[name] = c.nodes[name].Rate(key, 10, w)
			sum += shares[name]
		}
		return shares, sum
	}
	near := func(a, b float64) bool { return math.Abs(a-b) < .5 }
	for _, step := range []struct {
		what  string
		wants map[string]float64
		ok    func(map[string]float64) bool
	}{
		{"all flood", map[string]float64{"a": 1000, "b": 20, "c": 30}, func(s map[string]float64) bool {
			return near(s["a"], 3.33) && near(s["b"], 3.33) && near(s["c"], 3.33)
		}},
		{"one asks for little", map[string]float64{"a": 1000, "b": 20, "c": 1}, func(s map[string]float64) bool {
			return near(s["a"], 4.1) && near(s["b"], 4.1) && near(s["c"], 1.75)
		}},
		{"one alone", map[string]float64{"a": 1000}, func(s map[string]float64) bool { return near(s["a"], 10) }},
	} {
		eventually(t, step.what, func() bool {
			shares, sum := ask(step.wants)
			return step.ok(shares) && sum <= 10.001 && (len(shares) < 3 || sum > 9.5)
		})
	}
	eventually(t, "rows that nobody wants are removed", func() bool { return c.rows() == 0 })
}

// A node exchanges a limited number of keys of each kind. A refused key starts no exchange, even if callers use it
// often, because only regular exchanges remove unused keys.
func TestKeysAreBounded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 1, "a", "b")
	a := c.nodes["a"]
	for i := range keysMax + 100 {
		if rate := a.Rate(Key{"requests", fmt.Sprint(i)}, 10, 1); rate < 5 {
			t.Fatalf("of rate %d the share is %v", i, rate)
		}
	}
	if n := c.rows(); n > keysMax {
		t.Errorf("%d rows", n)
	}
	eventually(t, "what is not used makes room", func() bool { return c.rows() == 0 })

	s := New(c.d, "alone", slog.New(slog.DiscardHandler), time.Hour) // a node whose exchanges are not running
	s.Live(2)
	for i := range keysMax {
		s.Places(Key{kind, fmt.Sprint(i)}, 1)
	}
	<-s.kick
	for range 1000 {
		if n, known := s.Places(Key{kind, "one too many"}, 1); n != 1 || !known {
			t.Fatalf("of what found no room the share is %d, %v", n, known)
		}
	}
	if len(s.entries) != keysMax || len(s.kick) > 0 {
		t.Errorf("with %d keys an exchange is due: %v", len(s.entries), len(s.kick) > 0)
	}
	if s.Rate(Key{"requests", "team"}, 10, 1); len(s.entries) != keysMax+1 || len(s.kick) == 0 {
		t.Error("the keys of one kind leave no room for another")
	}
}

// Mail to many destinations does not displace teams' rate limits. If all of a team's requests reach one node, the team
// has its whole rate on that node.
func TestRateBesideManyDestinations(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 20, "a", "b", "c")
	a := c.nodes["a"]
	c.mu.Lock()
	a.want, a.used = 1, 1 // one slot for each destination, such as an open connection
	c.mu.Unlock()
	for i := range keysMax + 1 {
		a.Places(Key{kind, fmt.Sprint("destination ", i)}, 20)
	}
	eventually(t, "the team has its whole rate", func() bool { return a.Rate(Key{"requests", "team"}, 10, 10) >= 10 })
}

// A node without a row for a key uses at most an even share. Once the node has a row for the key, the nodes divide the
// limit according to their demands.
func TestLimitWithoutRoom(t *testing.T) {
	t.Parallel()
	c := newCluster(t, dbtest.Postgres(t), 20, "a", "b")
	a, b := c.nodes["a"], c.nodes["b"]
	uses := func(u *user, want, used int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		u.want, u.used = want, used
	}
	uses(a, 1, 1)
	for i := range keysMax {
		a.Places(Key{kind, fmt.Sprint("destination ", i)}, 20)
	}
	uses(b, 20, 0)
	key := Key{kind, "busy.example"}
	eventually(t, "the other node has all", func() bool {
		n, _ := b.Places(key, 20)
		return n == 20
	})
	if n, known := a.Places(key, 20); n != 10 || !known {
		t.Errorf("without room a node has %d of 20 places, %v", n, known)
	}
	uses(a, 0, 0)
	eventually(t, "both keep the limit", func() bool {
		ofA, known := a.Places(key, 20)
		ofB, _ := b.Places(key, 20)
		return known && ofA > 0 && ofA < 10 && ofA+ofB <= 20
	})
}

// A single node makes no queries, except to delete its rows when it becomes the only node.
func TestAloneWithoutQueries(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		c := &cluster{t: t, d: d}
		c.exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, 0)`, nodeID("a"))
		s := New(d, string(nodeID("a")), slog.New(slog.DiscardHandler), time.Hour)
		beats := func(what string, deletions int) {
			t.Helper()
			trace.Take()
			for range 50 {
				s.Live(1) // simulates the call after a heartbeat
				if n, known := s.Places(Key{kind, "k"}, 20); n != 20 || !known || s.Rate(Key{"rate", "k"}, 2, 1) != 2 {
					t.Errorf("%s, a node alone has %d, %v", what, n, known)
				}
				s.exchange(t.Context())
			}
			for _, st := range trace.Take() {
				if deletions--; st.SQL != removeAll {
					t.Errorf("%s, a node alone asks %s", what, st.SQL)
				}
			}
			if deletions != 0 && !d.Alone() {
				t.Errorf("%s, a node alone deletes its rows %+d times too few", what, deletions)
			}
		}
		beats("at its start", 1)
		beats("later", 0)
		if s.Live(2); !d.Alone() {
			s.Rate(Key{"rate", "k"}, 2, 1)
			s.exchange(t.Context())
			if n := c.rows(); n != 1 {
				t.Errorf("beside another, a node has %d rows", n)
			}
		}
		beats("after it was not alone", 1)
		if n := c.rows(); n != 0 {
			t.Errorf("alone again, a node has %d rows", n)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if n, known := (*Shares)(nil).Places(Key{kind, "k"}, 20); n != 20 || !known {
			t.Errorf("without shares, a node has %d, %v", n, known)
		}
	})
}
