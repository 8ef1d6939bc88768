package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// A lane with a long backlog, or with a worker that hangs, does not delay other lanes.
func TestLanesTakeTurns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		gate := make(chan struct{})
		b.r.Handle(jobs.Kind{Name: "k", Workers: 8, PerLane: 4, Handle: func(ctx context.Context, j jobs.Job) error {
			if j.Lane == "slow" {
				<-gate
			}
			defer b.saw(j)
			return b.finish(ctx, j)
		}})
		var slow []jobs.New
		for range 200 {
			slow = append(slow, jobs.New{Kind: "k", Lane: "slow"})
		}
		b.insert(t, slow...)
		b.start(t)
		for i := range 50 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("quick", i%5)})
		}
		for _, j := range b.await(t, 50) {
			if j.Lane == "slow" {
				t.Fatal("the gate leaks")
			}
		}
		close(gate)
		b.await(t, 250)
	})
}

// An owner with many hanging lanes leaves workers free for the next owner, and may use these workers once no other
// owner needs them.
func TestOwnersShareWorkers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		gate := make(chan struct{})
		started := make(chan struct{}, 1000)
		b.r.Handle(jobs.Kind{Name: "k", Workers: 16, PerLane: 2,
			Owner: func(lane string) string { owner, _, _ := strings.Cut(lane, "/"); return owner },
			Handle: func(ctx context.Context, j jobs.Job) error {
				if strings.HasPrefix(j.Lane, "slow/") {
					started <- struct{}{}
					<-gate
				}
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		var all []jobs.New
		for i := range 100 {
			all = append(all, jobs.New{Kind: "k", Lane: fmt.Sprint("slow/", i)})
		}
		b.insert(t, all...)
		stop := b.start(t)
		for range 14 { // one owner may use 14 workers, 7/8 of all
			<-started
		}
		for i := range 30 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("good/", i)})
		}
		for _, j := range b.await(t, 30) {
			if !strings.HasPrefix(j.Lane, "good/") {
				t.Errorf("%s ended while it was to hang", j.Lane)
			}
		}
		if n := len(started); n > 0 {
			t.Errorf("the slow owner has %d workers beyond its share", n)
		}
		close(gate)
		b.await(t, 130)
		stop()
		if n := left(t, d); n != 0 {
			t.Errorf("%d jobs are left", n)
		}
	})
}

// In a group at its limit, an owner with few lanes does not wait for all of another owner's lanes.
func TestOwnersTakeTurnsInAGroup(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		gate, begun := make(chan struct{}), make(chan struct{}, 2000)
		b.r.Handle(jobs.Kind{Name: "k", Workers: 64, PerLane: 4, Group: func(string) string { return "relay" },
			Owner: func(lane string) string { owner, _, _ := strings.Cut(lane, "/"); return owner },
			Handle: func(ctx context.Context, j jobs.Job) error {
				begun <- struct{}{}
				<-gate
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		var all []jobs.New
		for i := range 1000 {
			all = append(all, jobs.New{Kind: "k", Lane: fmt.Sprint("many/", i)})
		}
		b.insert(t, all...)
		b.start(t)
		for range 4 {
			<-begun
		}
		b.insert(t, jobs.New{Kind: "k", Lane: "few/0"}, jobs.New{Kind: "k", Lane: "few/1"})
		close(gate)
		few := 0
		for i, j := range b.await(t, 1002) {
			if strings.HasPrefix(j.Lane, "few/") {
				if few++; i > 200 {
					t.Errorf("%s was number %d", j.Lane, i)
				}
			}
		}
		if few != 2 {
			t.Errorf("%d of two jobs ran", few)
		}
	})
}

// If one owner's running jobs use up a group's limit, another owner's jobs still start, even if the running jobs take a
// long time.
func TestOwnersFindRoomInAFullGroup(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		gate, begun := make(chan struct{}), make(chan string, 100)
		b.r.Handle(jobs.Kind{Name: "k", Workers: 64, PerLane: 4, Group: func(string) string { return "relay" },
			Owner: func(lane string) string { owner, _, _ := strings.Cut(lane, "/"); return owner },
			Handle: func(ctx context.Context, j jobs.Job) error {
				begun <- j.Lane
				<-gate
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		for i := range 20 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("many/", i)})
		}
		b.start(t)
		seen := map[string]int{}
		begin := func(n int) {
			t.Helper()
			for range n {
				select {
				case lane := <-begun:
					owner, _, _ := strings.Cut(lane, "/")
					seen[owner]++
				case <-time.After(30 * time.Second):
					t.Fatalf("only %v began", seen)
				}
			}
		}
		begin(4)
		for i := range 20 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("few/", i)})
		}
		begin(2)
		b.insert(t, jobs.New{Kind: "k", Lane: "third/0"})
		begin(1)
		if seen["many"] != 4 || seen["few"] != 2 || seen["third"] != 1 || len(begun) > 0 {
			t.Errorf("in hand of a group of 4: %v and %d more", seen, len(begun))
		}
		close(gate)
		b.await(t, 41)
	})
}

func TestGroupsShareALimit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		var mu sync.Mutex
		inHand, most := 0, 0
		b.r.Handle(jobs.Kind{Name: "k", Workers: 30, PerLane: 3, Group: func(lane string) string { return lane[:1] },
			Handle: func(ctx context.Context, j jobs.Job) error {
				mu.Lock()
				inHand++
				most = max(most, inHand)
				mu.Unlock()
				err := b.finish(ctx, j)
				mu.Lock()
				inHand--
				mu.Unlock()
				b.saw(j)
				return err
			}})
		for i := range 60 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("a", i%10)})
		}
		b.start(t)
		teams := map[string]bool{}
		for _, j := range b.await(t, 60)[:20] {
			teams[j.Lane] = true
		}
		if most > 3 {
			t.Errorf("%d in hand at once, want 3 at most", most)
		}
		if len(teams) < 3 {
			t.Errorf("the first 20 jobs came from %d lanes: they do not take turns", len(teams))
		}
	})
}

func TestLimitIsAskedAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		var mu sync.Mutex
		asked := 0
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}, Limit: func(string) (int, time.Time) {
			mu.Lock()
			defer mu.Unlock()
			if asked++; asked < 3 {
				return 0, time.Now().Add(10 * time.Millisecond)
			}
			return 1, time.Time{}
		}})
		b.insert(t, jobs.New{Kind: "k"}, jobs.New{Kind: "k"})
		b.start(t)
		b.await(t, 2)
	})
}
