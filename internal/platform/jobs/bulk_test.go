package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// bulkKind returns a kind whose lanes are named owner/group/class; lanes of class b are bulk.
func bulkKind(workers, perLane int, handle func(context.Context, jobs.Job) error) jobs.Kind {
	part := func(n int) func(string) string {
		return func(lane string) string { return strings.Split(lane, "/")[n] }
	}
	return jobs.Kind{Name: "k", Workers: workers, PerLane: perLane, Owner: part(0), Group: part(1), Handle: handle,
		Bulk: func(lane string) bool { return strings.HasSuffix(lane, "/b") }}
}

// Other jobs find capacity even if many of the same owner's bulk jobs wait in a group or take a long time.
func TestBulkLeavesPlaces(t *testing.T) {
	for _, c := range []struct {
		name             string
		workers, perLane int
		groups           int // number of groups for the bulk lanes
		bulk             int // number of bulk jobs that run at a time
		lane             string
		other            int // number of other jobs that run at the same time
	}{
		{"in a group", 64, 8, 1, 6, "o/g0/f", 2},               // bulk jobs leave a quarter of the 8 jobs per lane free
		{"of an owner's workers", 16, 8, 16, 11, "o/new/f", 3}, // bulk jobs leave a quarter of 14 workers free
	} {
		t.Run(c.name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				b := newBench(t, d)
				gate, begun := make(chan struct{}), make(chan string, 1000)
				open := sync.OnceFunc(func() { close(gate) })
				b.r.Handle(bulkKind(c.workers, c.perLane, func(ctx context.Context, j jobs.Job) error {
					begun <- j.Lane
					<-gate
					defer b.saw(j)
					return b.finish(ctx, j)
				}))
				begin := func(n int, suffix string) {
					t.Helper()
					for range n {
						select {
						case lane := <-begun:
							if !strings.HasSuffix(lane, suffix) {
								t.Errorf("%s began", lane)
							}
						case <-time.After(30 * time.Second):
							t.Fatalf("fewer than %d of %s began", n, suffix)
						}
					}
				}
				for i := range 200 {
					b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprintf("o/g%d/b", i%c.groups)})
				}
				b.start(t)
				t.Cleanup(open)
				begin(c.bulk, "/b")
				for range 20 {
					b.insert(t, jobs.New{Kind: "k", Lane: c.lane})
				}
				begin(c.other, "/f")
				if len(begun) > 0 {
					t.Errorf("%s began, too", <-begun)
				}
				open()
				b.await(t, 220)
			})
		})
	}
}

// If bulk jobs and other jobs wait for the same worker, the other jobs run first, but bulk jobs do not wait forever.
func TestBulkGoesOn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r.Handle(bulkKind(4, 1, func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}))
		var all []jobs.New
		for i := range 100 {
			all = append(all, jobs.New{Kind: "k", Lane: "o/g/b"}, jobs.New{Kind: "k", Lane: fmt.Sprintf("o%d/g/f", i)})
		}
		b.insert(t, all...)
		b.start(t)
		last, between := 0, 0
		for i, j := range b.await(t, 200) {
			if strings.HasSuffix(j.Lane, "/f") {
				last = i
			}
		}
		for _, j := range b.await(t, 200)[:last] {
			if strings.HasSuffix(j.Lane, "/b") {
				between++
			}
		}
		if between < 5 || between > 30 {
			t.Errorf("%d of 100 jobs of bulk ran before the last of 100 others", between)
		}
	})
}

// A lane that waits for its group continues as soon as the group's limit is raised, even if no job has ended.
func TestGrownLimit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		var limit atomic.Int64
		limit.Store(1)
		gate, begun := make(chan struct{}), make(chan string, 10)
		open := sync.OnceFunc(func() { close(gate) })
		b.r.Handle(jobs.Kind{Name: "k", Workers: 8, PerLane: 8, Group: func(string) string { return "g" },
			Limit: func(string) (int, time.Time) { return int(limit.Load()), time.Time{} },
			Handle: func(ctx context.Context, j jobs.Job) error {
				begun <- j.Lane
				<-gate
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		b.insert(t, jobs.New{Kind: "k", Lane: "a"}, jobs.New{Kind: "k", Lane: "b"}, jobs.New{Kind: "k", Lane: "c"})
		b.start(t)
		t.Cleanup(open)
		<-begun
		limit.Store(2)
		b.r.LimitRaised("other", "g")
		b.r.LimitRaised("k", "g")
		select {
		case <-begun:
		case <-time.After(30 * time.Second):
			t.Fatal("nothing more begins")
		}
		if len(begun) > 0 {
			t.Error("more begin than the limit allows")
		}
		open()
		b.await(t, 3)
	})
}

// If a lane is held because its group is full, it continues when the group's temporary limit ends. The group's running
// job need not finish first.
func TestHeldLaneGoesOnAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, dbtest.SQLite(t))
		hang, answer := make(chan struct{}), make(chan struct{})
		var paused atomic.Pointer[time.Time]
		b.r.Handle(jobs.Kind{Name: "k", Workers: 10, PerLane: 2,
			Group: func(string) string { return "host" },
			Limit: func(string) (int, time.Time) {
				if until := paused.Load(); until != nil && time.Now().Before(*until) {
					return 0, *until
				}
				return 2, time.Time{}
			},
			Handle: func(ctx context.Context, j jobs.Job) error {
				switch j.Lane {
				case "a":
					<-hang
				case "b":
					<-answer
					until := time.Now().Add(30 * time.Second) // simulates a host that asks for less mail
					paused.Store(&until)
				}
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		b.insert(t, jobs.New{Kind: "k", Lane: "a"}, jobs.New{Kind: "k", Lane: "b"})
		b.start(t)
		time.Sleep(time.Second)
		b.insert(t, jobs.New{Kind: "k", Lane: "c"})
		time.Sleep(time.Second) // after this wait, lane c is held
		close(answer)
		for i, want := range []int{1, 2} { // lane b's job ends first, and lane c's job ends after the pause
			time.Sleep(20 * time.Second)
			b.mu.Lock()
			if n := len(b.seen); n != want {
				t.Errorf("%d s after the pause began %d jobs have ended, want %d", 20*(i+1), n, want)
			}
			b.mu.Unlock()
		}
		close(hang)
		b.await(t, 3)
	})
}
