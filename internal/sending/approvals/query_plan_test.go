package approvals_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/approvals"
)

// The query that lists a connected app's requests does not read the team's other approvals.
func TestOwnListGoesByIndex(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		const first = "00000000-0000-7000-8000-0000000" // of each id
		n.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO approvals (id, team_id, actor_kind, actor_id, actor_name, sender,
				recipients, subject, state, created_at, expires_at, decided_at, decided_by_kind, decided_by_id, reason,
				email_id, request) WITH RECURSIVE n(i) AS (SELECT 10000 UNION ALL SELECT i + 1 FROM n WHERE i < 12999)
				SELECT CAST(id AS UUID), $1, 'grant', CASE WHEN i < 10010 THEN
				CAST($2 AS UUID) ELSE CAST($3 AS UUID) END, '', '', 1, '',
				CASE WHEN i < 10005 THEN 'pending' ELSE 'approved' END, i, i, i, '', NULL, '', NULL, ''
				FROM (SELECT i, $4 || CAST(i AS TEXT) AS id FROM n) x`,
				db.ID(n.Acme.TeamID), db.ID(dbtest.ID("own")), db.ID(dbtest.ID("other")), first)
			return err
		})
		if d.Engine() == "postgres" {
			n.Update(func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `ANALYZE approvals`)
				return err
			})
		}
		own := teams.Actor{Kind: teams.GrantActor, ID: dbtest.ID("own"), TeamID: n.Acme.TeamID}
		for state, want := range map[approvals.State]int{"": 10, approvals.Pending: 5} {
			for _, p := range []page.Page{{Limit: 20}, {Limit: 20, After: first + "10100"},
				{Limit: 20, Before: first + "09999"}} {
				trace.Take()
				all, _, err := n.Approvals.List(t.Context(), own, state, p)
				asked := trace.Take()
				if err != nil || len(all) != want || len(asked) == 0 {
					t.Fatalf("%d approvals by %d statements, %v", len(all), len(asked), err)
				}
				s := asked[len(asked)-1]
				if plan := trace.Plan(t, s); !strings.Contains(plan, "approvals_own") || strings.Contains(plan, "Sort") ||
					strings.Contains(plan, "TEMP B-TREE") {
					t.Errorf("%s\n%s", s.SQL, plan)
				}
			}
		}
	})
}
