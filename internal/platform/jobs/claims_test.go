package jobs_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// Many lanes with one job each are claimed in one transaction, with only a few statements. In a lane with many jobs,
// all jobs are still claimed and finished.
func TestClaimsOfManyLanes(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "k", Workers: 256, Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}})
		const lanes, more = 500, 300
		var all []jobs.New
		for i := range lanes {
			all = append(all, jobs.New{Kind: "k", Lane: fmt.Sprint("lane", i)})
		}
		for range more {
			all = append(all, jobs.New{Kind: "k", Lane: "deep"})
		}
		b.insert(t, all...)
		trace.Take()
		b.start(t)
		ran := map[string]int{}
		for _, j := range b.await(t, lanes+more) {
			ran[j.Lane]++
		}
		if len(ran) != lanes+1 || ran["deep"] != more {
			t.Errorf("%d lanes ran, %d jobs of the deep one", len(ran), ran["deep"])
		}
		claims := 0
		for _, s := range trace.Take() {
			if strings.Contains(s.SQL, "UPDATE jobs SET run_at") {
				claims++
			}
		}
		if claims > lanes/4 {
			t.Errorf("%d statements claimed %d lanes", claims, lanes+1)
		}
	})
}

// A job locked by another transaction, such as a hanging node's claim, causes no busy loop in the dispatcher and does
// not delay other lanes.
func TestClaimOfALockedJob(t *testing.T) {
	d, trace := dbtest.PostgresTraced(t)
	b := newBench(t, d)
	b.r.Handle(jobs.Kind{Name: "k", Workers: 8, Handle: func(ctx context.Context, j jobs.Job) error {
		defer b.saw(j)
		return b.finish(ctx, j)
	}})
	b.insert(t, jobs.New{Kind: "k", Lane: "locked"})
	locked, free, gone := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		if err := d.Update(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT 1 FROM jobs WHERE lane = 'locked' FOR UPDATE`)
			close(locked)
			<-free
			return err
		}); err != nil {
			t.Error(err)
		}
	}()
	<-locked
	claims := 0
	claimed := func() int {
		for _, s := range trace.Take() {
			if strings.Contains(s.SQL, "UPDATE jobs SET run_at = $1, attempt") {
				claims++
			}
		}
		return claims
	}
	b.start(t)
	for claimed() == 0 { // wait until the runner has tried to claim the locked job
	}
	for i := range 3 {
		b.insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint("other", i)})
		b.await(t, i+1)
	}
	close(free)
	<-gone
	b.await(t, 4)
	if claimed() > 30 {
		t.Errorf("%d claims of four jobs", claims)
	}
}
