package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// A paused runner finishes the jobs that it has claimed, and claims others only after the pause.
func TestPause(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		release := make(chan struct{})
		var sure error
		b.r.Handle(jobs.Kind{Name: "slow", Handle: func(ctx context.Context, j jobs.Job) error {
			b.saw(j)
			<-release
			if sure == nil {
				sure = j.Sure(ctx)
			}
			return b.finish(ctx, j)
		}})
		defer b.start(t)()
		b.insert(t, jobs.New{Kind: "slow", Lane: "a"})
		b.await(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if left := b.r.Pause(ctx); left != 1 {
			t.Errorf("%d jobs are left, want the one that runs", left)
		}
		close(release)
		if left := b.r.Pause(t.Context()); left != 0 {
			t.Errorf("%d jobs are left after the end of the only one", left)
		}
		if sure == nil {
			t.Error("the job was sure after the wait for it had ended")
		}
		b.insert(t, jobs.New{Kind: "slow", Lane: "b"})
		if left := b.r.Pause(t.Context()); left != 0 || len(b.await(t, 1)) != 1 {
			t.Errorf("a paused runner has claimed a job; %d are left", left)
		}
		b.r.Resume()
		b.await(t, 2)
	})
}
