package jobs_test

import (
	"context"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// A runner that cannot register its node returns an error, because no other node would take over jobs that it claimed.
func TestRunnerNeedsTheDatabase(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(context.Context, jobs.Job) error { return nil }})
		d.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := b.r.Run(ctx); err == nil || ctx.Err() != nil {
			t.Errorf("without a database: %v", err)
		}
	})
}
