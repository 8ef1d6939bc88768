package quotas_test

import (
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// BenchmarkSend measures how fast a team's emails are accepted from many concurrent callers: once without a quota, and
// once far below the quota.
func BenchmarkSend(b *testing.B) {
	for engine, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		for _, c := range []struct {
			name  string
			quota int64
		}{{"none", 0}, {"much", teams.MaxQuota}} {
			b.Run(engine+"/"+c.name, func(b *testing.B) {
				n := testnode.New(b, open(b), testnode.Options{})
				n.Must(n.Quotas.Set(b.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) { q.Daily = c.quota }))
				b.SetParallelism(16)
				b.ResetTimer()
				b.RunParallel(func(p *testing.PB) {
					for p.Next() {
						e := testnode.Hello("a@example.net")
						_, err := n.Emails.Send(b.Context(), n.Acme, e, emails.Idempotency{})
						n.Must(err)
					}
				})
			})
		}
	}
}
