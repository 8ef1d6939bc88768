package metrics_test

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
	"github.com/postrider/postrider/internal/sending/metrics"
)

// Each event of 1,000 teams, half of which are deleted, is counted once by the parts of RollUp, which run at the same
// time. A part that has nothing to count reads only the list of teams.
func TestPartsCountEachTeamOnce(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		const teams, parts = 1000, 7
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			var emails, ids, owners []db.ID
			for i := range teams {
				team := db.ID(dbtest.ID(fmt.Sprint("team", i)))
				tx.Queue(t.Context(), `INSERT INTO teams (id, short_id, name, email, rate_limit, suspended, created_at,
					deleted_at) VALUES ($1, $2, 'team', '', 0, FALSE, 0, $3)`, team, int64(i)*(1<<31/teams)+1, i%2)
				for n := range 2 {
					emails = append(emails, db.ID(dbtest.ID(fmt.Sprint("email", i, n))))
					ids, owners = append(ids, db.ID(dbtest.ID(fmt.Sprint("event", i, n)))), append(owners, team)
				}
			}
			_, err := tx.InsertRows(t.Context(), `email_events (email_id, id, team_id, domain_id, broadcast_id, type, detail,
				recipient, data, created_at)`, "", emails, ids, owners, db.ID(""), db.ID(""), int64(5), "",
				"a@example.net", "", time.Now().Add(-time.Hour).UnixMicro())
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s := metrics.New(d)
		var all sync.WaitGroup
		for n := range parts {
			all.Go(func() {
				if err := s.RollUpPart(context.Background(), jobs.Part{N: n, Of: parts}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		check := func() {
			t.Helper()
			var counters, counted int
			if err := d.QueryRow(t.Context(), `SELECT COUNT(*), SUM(events) FROM email_counts`).Scan(&counters,
				&counted); err != nil || counters != teams || counted != 2*teams {
				t.Errorf("%d counters have %d events: %v", counters, counted, err)
			}
		}
		check()
		trace.Take()
		if err := s.RollUpPart(t.Context(), jobs.Part{N: 1, Of: parts}); err != nil {
			t.Fatal(err)
		}
		for _, q := range trace.Take() {
			if !strings.Contains(q.SQL, "FROM teams WHERE short_id") {
				t.Errorf("a part without new events also asks %s", q.SQL)
			}
		}
		check()
	})
}
