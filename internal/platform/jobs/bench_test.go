package jobs_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// BenchmarkDrain claims and finishes 200,000 waiting jobs, all in one lane or each in a separate lane.
func BenchmarkDrain(b *testing.B) {
	const n = 200_000
	for _, lanes := range []int{1, n} {
		for engine, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
			b.Run(fmt.Sprintf("%s/lanes=%d", engine, lanes), func(b *testing.B) {
				for b.Loop() {
					d := open(b)
					q := jobs.NewQueue(d)
					for from := 0; from < n; from += 1000 {
						if err := d.Update(b.Context(), func(tx *db.Tx) error {
							for i := range 1000 {
								q.Insert(b.Context(), tx, jobs.New{Kind: "k", Lane: fmt.Sprintf("%06d", (from+i)%lanes)})
							}
							return nil
						}); err != nil {
							b.Fatal(err)
						}
					}
					r := jobs.NewRunner(d, q, slog.New(slog.DiscardHandler), time.Second)
					ctx, cancel := context.WithCancel(b.Context())
					var done atomic.Int64
					r.Handle(jobs.Kind{Name: "k", Workers: 256, Handle: func(ctx context.Context, j jobs.Job) error {
						err := d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
							q.Finish(ctx, tx, j)
							return nil
						})
						if err == nil && done.Add(1) == n {
							cancel()
						}
						return err
					}})
					began := time.Now()
					if err := r.Run(ctx); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(n/time.Since(began).Seconds(), "jobs/s")
				}
			})
		}
	}
}
