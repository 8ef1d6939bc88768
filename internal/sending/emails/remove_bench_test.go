package emails_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/outbound/retention"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// BenchmarkRemoveWhileAccepting accepts emails one after another while up to 50,000 old emails are deleted.
// BenchmarkRemoveWhileAccepting reports the 99th percentile of the time to accept an email, and the number of deletions
// per second.
func BenchmarkRemoveWhileAccepting(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			f := newFixture(b, open(b))
			f.Counted(later())
			const old = 50_000
			f.fill(b, old)
			f.change(`ANALYZE`) // in production, autovacuum does this before emails become old
			cut := time.Now()   // emails accepted after this time are not deleted
			ctx, stop := context.WithCancel(b.Context())
			s := retention.New(teams.Retention{Emails: teams.MinRetention}, f.Teams,
				func() time.Time { return cut.Add(teams.MinRetention) },
				retention.Rule{Name: "emails", Period: func(r teams.Retention) time.Duration { return r.Emails },
					Step: f.Emails.RemoveBefore})
			var running sync.WaitGroup
			var took time.Duration
			began := time.Now()
			running.Go(func() {
				if err := s.Run(ctx); err != nil && ctx.Err() == nil {
					b.Error(err)
				}
				took = time.Since(began)
			})
			var all []time.Duration
			for b.Loop() {
				start := time.Now()
				if _, err := f.Emails.Send(b.Context(), f.Acme, hello("b@one.example"), emails.Idempotency{}); err != nil {
					b.Fatal(err)
				}
				all = append(all, time.Since(start))
			}
			stop()
			running.Wait()
			slices.Sort(all)
			left := f.Count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`)
			b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
			b.ReportMetric(float64(old-left)/took.Seconds(), "deleted/s")
		})
	}
}
