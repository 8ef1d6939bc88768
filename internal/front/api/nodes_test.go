package api

import (
	"context"
	"log/slog"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/nodelimits"
)

// nodes holds several APIs that share one database and a clock that the test sets.
type nodes struct {
	t      *testing.T
	d      *db.DB
	team   string
	clock  atomic.Int64 // current time in seconds
	apis   []*fixture
	shares []*nodelimits.Shares
	stops  []func()
}

func newNodes(t *testing.T, limit, count int) *nodes {
	t.Helper()
	first := newFixture(t, dbtest.Postgres(t), Options{})
	n := &nodes{t: t, d: first.DB, team: first.Acme.TeamID}
	n.clock.Store(1_800_000_000)
	for i := range count {
		name := dbtest.ID("node" + strconv.Itoa(i))
		n.exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, 0)`, db.ID(name))
		s := nodelimits.New(n.d, name, slog.New(slog.DiscardHandler), 50*time.Millisecond)
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { s.Run(ctx) })
		n.stops = append(n.stops, sync.OnceFunc(func() { cancel(); wg.Wait() }))
		t.Cleanup(n.stops[i])
		f := *first
		f.API = New(Options{Services: first.Services, Log: slog.New(slog.DiscardHandler), Version: "test", RateLimit: limit,
			Limits: &teams.Limiter{Shares: s, Now: func() time.Time { return time.Unix(n.clock.Load(), 0) }}})
		n.apis, n.shares = append(n.apis, &f), append(n.shares, s)
		s.Live(1)
	}
	for _, s := range n.shares {
		s.Live(count)
	}
	return n
}

func (n *nodes) exec(text string, args ...any) {
	n.t.Helper()
	err := n.d.Update(context.Background(), func(tx *db.Tx) error {
		_, err := tx.Exec(context.Background(), text, args...)
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
}

// second sends the given numbers of requests to the nodes within one second, and returns the number of requests that
// each node accepted.
func (n *nodes) second(limit int, requests ...int) (admitted []int) {
	n.t.Helper()
	n.clock.Add(1)
	for i, asked := range requests {
		admitted = append(admitted, 0)
		for range asked {
			w := n.apis[i].do(n.t, "GET /api-keys")
			switch w.Code {
			case http.StatusOK:
				admitted[i]++
			case http.StatusTooManyRequests:
			default:
				n.t.Fatalf("%d %s", w.Code, w.Body)
			}
			left, err := strconv.Atoi(w.Header().Get("Ratelimit-Remaining"))
			if h := w.Header(); h.Get("Ratelimit-Limit") != strconv.Itoa(limit) || err != nil || left < 0 || left >= limit {
				n.t.Fatalf("headers %v", h)
			}
		}
	}
	return admitted
}

// settle sends requests every second until the nodes' shares of the rate limit have settled. The shares have settled
// when ok accepts the results, and the shares of the nodes that receive requests do not exceed the limit in total. A
// simulated second is shorter than the interval at which nodes exchange their request counts.
func (n *nodes) settle(what string, limit int, requests []int, ok func(admitted []int) bool) {
	n.t.Helper()
	var last []int
	good := 0
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		last = n.second(limit, requests...)
		sum := 0.0
		for i := range requests {
			sum += n.shares[i].Rate(nodelimits.Key{Kind: "requests", Name: n.team}, float64(limit), float64(requests[i]))
		}
		if good++; !ok(last) || sum > float64(limit)+.01 {
			good = 0
		}
		if good == 10 {
			return
		}
	}
	n.t.Fatalf("%s: not within half a minute, but %v", what, last)
}

// flood sends requests for the given number of seconds, and fails the test if the nodes together accept more or fewer
// requests than the limit.
func (n *nodes) flood(what string, limit, seconds int, requests ...int) {
	n.t.Helper()
	total := 0
	for range seconds {
		for _, a := range n.second(limit, requests...) {
			total += a
		}
	}
	if want := float64(limit * seconds); float64(total) < .95*want || float64(total) > 1.05*want {
		n.t.Errorf("%s: %d requests were admitted in %d seconds, want %v", what, total, seconds, want)
	}
}

// Three nodes together accept as many requests from a team as a single node does. The test floods all nodes, then one
// node, and then, after one node has died, the remaining nodes.
func TestNodesKeepOneRate(t *testing.T) {
	t.Parallel()
	const limit = 10
	n := newNodes(t, limit, 3)
	about := func(want ...int) func([]int) bool {
		return func(admitted []int) bool {
			for i, w := range want {
				if admitted[i] < w-1 || admitted[i] > w+1 {
					return false
				}
			}
			return true
		}
	}
	flood := []int{15, 15, 15}
	n.settle("all are flooded", limit, flood, about(3, 3, 3))
	n.flood("all are flooded", limit, 40, flood...)
	n.settle("one is flooded", limit, []int{15}, func(a []int) bool { return a[0] == limit })
	n.flood("one is flooded", limit, 40, 15)
	n.settle("all are flooded again", limit, flood, about(3, 3, 3))

	n.stops[2]()
	n.exec(`DELETE FROM nodes WHERE id = $1`, db.ID(dbtest.ID("node2")))
	n.shares[0].Live(2)
	n.shares[1].Live(2)
	n.settle("one has died", limit, []int{15, 15}, about(5, 5))
	n.flood("one has died", limit, 40, 15, 15)
}

// A client that stays within its rate limit is not refused when its requests are distributed across several nodes.
func TestNodesByTurns(t *testing.T) {
	t.Parallel()
	const limit = 2
	n := newNodes(t, limit, 3)
	turn := 0
	spread := func(seconds int) (admitted int) {
		for range seconds {
			for range limit - 1 {
				requests := make([]int, 3)
				requests[turn%3] = 1
				turn++
				for _, a := range n.second(limit, requests...) {
					admitted += a
				}
			}
		}
		return admitted
	}
	spread(12)
	if got := spread(60); got < 57 {
		t.Errorf("of 60 requests in 60 seconds, at %d a second, %d were admitted", limit, got)
	}
}
