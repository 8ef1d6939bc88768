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

// Groups in doubt leave some of their owner's workers free for groups that make progress. Stuck groups leave some
// workers free for all of the owner's other groups.
func TestGroupsInDoubtLeaveWorkers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		hang := make(chan struct{})
		began := make(chan string, 1000)
		var mu sync.Mutex
		most, now := map[byte]int{}, map[byte]int{}
		step := func(kind byte, n int) {
			mu.Lock()
			defer mu.Unlock()
			now[kind] += n
			most[kind] = max(most[kind], now[kind])
		}
		b.r.Handle(jobs.Kind{Name: "k", Workers: 64, Owner: func(string) string { return "owner" },
			Share: func(group, _ string) jobs.Share {
				return jobs.Share{Most: 2, Doubt: map[byte]jobs.Doubt{'s': jobs.Sure, 'u': jobs.Unknown, 'x': jobs.Stuck}[group[0]]}
			},
			Handle: func(ctx context.Context, j jobs.Job) error {
				step(j.Lane[0], 1)
				defer step(j.Lane[0], -1)
				if j.Lane[0] != 's' {
					began <- j.Lane
					<-hang
				}
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		var all []jobs.New
		// The owner may use 56 workers: 42 for groups in doubt, including 10 for stuck groups. Only 12 jobs are in stuck
		// groups, because at the end few of those begin each second.
		for i := range 96 {
			group := "u"
			if i%8 == 7 {
				group = "x"
			}
			all = append(all, jobs.New{Kind: "k", Lane: fmt.Sprint(group, i/4)})
		}
		b.insert(t, all...)
		b.start(t)
		for range 42 {
			select {
			case <-began:
			case <-time.After(30 * time.Second):
				t.Fatalf("in hand at most %v", most)
			}
		}
		for i := range 100 {
			b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("s", i%10)})
		}
		for _, j := range b.await(t, 100) {
			if !strings.HasPrefix(j.Lane, "s") {
				t.Errorf("a job of %s came to an end", j.Lane)
			}
		}
		mu.Lock()
		if most['x'] > 10 || most['x']+most['u'] != 42 {
			t.Errorf("in hand at most %d of groups that are stuck and %d of those that nobody knows", most['x'], most['u'])
		}
		mu.Unlock()
		close(hang)
		b.await(t, 196)
	})
}
