package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// runs records which node has run which part.
type runs struct {
	mu    sync.Mutex
	parts map[string]int
	nodes map[string]int
	now   map[string]bool
	news  chan struct{}
}

func newRuns() *runs {
	return &runs{parts: map[string]int{}, nodes: map[string]int{}, now: map[string]bool{}, news: make(chan struct{}, 1000)}
}

// begin records the start of a part on a node, and end its end.
func (r *runs) begin(t *testing.T, node string, p jobs.Part) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.now[p.String()] || r.now[node] {
		t.Errorf("part %s begins on node %s while this part or another part of the node runs", p, node)
	}
	r.now[p.String()], r.now[node] = true, true
	r.nodes[node]++
}

func (r *runs) end(node string, p jobs.Part) {
	r.mu.Lock()
	delete(r.now, p.String())
	delete(r.now, node)
	r.parts[p.String()]++
	r.mu.Unlock()
	r.news <- struct{}{}
}

func (r *runs) await(t *testing.T, n int) {
	t.Helper()
	limit := time.After(60 * time.Second)
	for range n {
		select {
		case <-r.news:
		case <-limit:
			t.Fatalf("the parts that ran are %v", r.parts)
		}
	}
}

// due returns the jobs of a cron's parts, due immediately.
func due(parts int) (all []jobs.New) {
	for n := range parts {
		p := jobs.Part{N: n, Of: parts}.String()
		all = append(all, jobs.New{Kind: "cron.c", Dedupe: "c." + p, Payload: p})
	}
	return all
}

func cronDedupes(t *testing.T, d *db.DB) []string {
	t.Helper()
	rows, err := d.Query(t.Context(), `SELECT dedupe FROM jobs WHERE kind = 'cron.c' ORDER BY dedupe`)
	all, err := db.Collect(rows, err, func(r db.Row) (s string, err error) { return s, r.Scan(&s) })
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func parted(parts int, run func(context.Context, jobs.Part) error) jobs.Cron {
	return jobs.Cron{Name: "c", Every: 24 * time.Hour, Parts: parts, RunPart: run}
}

// Two nodes share the parts of a cron: each part runs once, and a node runs one part at a time.
func TestNodesShareTheParts(t *testing.T) {
	url := dbtest.PostgresURL(t)
	d, other := dbtest.Open(t, url), dbtest.Open(t, url)
	newBench(t, d).insert(t, due(8)...)
	r := newRuns()
	both := make(chan struct{})
	var begun sync.WaitGroup // the first part of each node ends only when the other node has begun a part
	begun.Add(2)
	go func() { begun.Wait(); close(both) }()
	for node, d := range map[string]*db.DB{"a": d, "b": other} {
		b := newBench(t, d)
		first := true
		b.r.Cron(parted(8, func(ctx context.Context, p jobs.Part) error {
			r.begin(t, node, p)
			defer r.end(node, p)
			if first {
				first = false
				begun.Done()
				select {
				case <-both:
				case <-ctx.Done():
				}
			}
			return nil
		}))
		b.start(t)
	}
	r.await(t, 8)
	want := map[string]int{}
	for n := range 8 {
		want[fmt.Sprintf("%d/8", n)] = 1
	}
	if fmt.Sprint(r.parts) != fmt.Sprint(want) || r.nodes["a"] == 0 || r.nodes["b"] == 0 {
		t.Errorf("parts %v, nodes %v", r.parts, r.nodes)
	}
}

// An error in a part does not delay other parts, and a database of one node has one part.
func TestErrorInAPart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b, r := newBench(t, d), newRuns()
		b.r.Cron(parted(4, func(_ context.Context, p jobs.Part) error {
			r.begin(t, "a", p)
			defer r.end("a", p)
			if p.N == 0 {
				return errors.New("a bad day")
			}
			return nil
		}))
		want := []string{"c.0/4", "c.1/4", "c.2/4", "c.3/4"}
		if d.Alone() {
			want = []string{"c"}
			b.insert(t, jobs.New{Kind: "cron.c", Dedupe: "c"})
		}
		b.insert(t, due(4)...) // deleted on SQLite
		stop := b.start(t)
		r.await(t, len(want))
		stop()
		if got := cronDedupes(t, d); !slices.Equal(got, want) {
			t.Errorf("the cron has the jobs %q", got)
		}
		var soon int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE kind = 'cron.c' AND last_error = 'a bad day'`).
			Scan(&soon); err != nil || soon != 1 {
			t.Errorf("%d jobs have an error: %v", soon, err)
		}
	})
}

// The parts' ranges contain each number once.
func TestRanges(t *testing.T) {
	for _, of := range []int{1, 2, 7, 16, 1000} {
		before := int64(-1)
		for n := range of {
			after, last := jobs.Part{N: n, Of: of}.Range()
			if after != before || last <= after {
				t.Errorf("part %d of %d is from %d to %d, after %d", n, of, after, last, before)
			}
			before = last
		}
		if before != 1<<31-1 {
			t.Errorf("%d parts end at %d", of, before)
		}
	}
}
