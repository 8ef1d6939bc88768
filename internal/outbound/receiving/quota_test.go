package receiving_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Two messages that are received for the same two teams, in different order, do not deadlock on the teams' quota rows.
func TestTwoTeamsWithQuotas(t *testing.T) {
	t.Parallel()
	d, trace := dbtest.PostgresTraced(t)
	f := newFixture(t, d)
	for _, teamID := range []string{f.Acme.TeamID, f.Other.TeamID} {
		f.Must(f.Quotas.Set(t.Context(), f.Node.Teams, teamID, func(q *teams.Quota) { q.Daily = 1 }))
	}
	trace.Take()
	var wait sync.WaitGroup
	waiting := func(n int) {
		testnode.Until(t, "somebody waits", func() bool {
			return f.Count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock'`) >= n
		})
	}
	const one, two = "a@in.acme.example", "b@other.example"
	f.Update(func(tx *db.Tx) error {
		rows, err := tx.Query(t.Context(), `SELECT part FROM team_volumes WHERE team_id = $1 ORDER BY part FOR UPDATE`,
			db.ID(f.Other.TeamID))
		if err != nil {
			return err
		}
		rows.Close()
		wait.Go(func() { f.deliver(t, "Subject: one\n\nx\n", two, one) })
		waiting(1)
		wait.Go(func() { f.deliver(t, "Subject: two\n\nx\n", one, two) })
		waiting(2)
		return rows.Err()
	})
	wait.Wait()
	entered := 0
	for _, s := range trace.Take() {
		if strings.Contains(s.SQL, "INSERT INTO received_emails") {
			entered++
		}
	}
	if entered != 4 {
		t.Errorf("%d rows were entered of 4: a transaction was ended because two waited for each other", entered)
	}
}
