package webhooks_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
)

// Erasing reads only the given team's messages, using an index.
func TestErasingReadsOneTeamsMessages(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFixture(t, d, config(), loopbackOnly)
		team := f.Acme.TeamID
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			for condition, teamID := range map[string]string{"i % 1000 = 1": team, "i % 1000 <> 1": dbtest.ID("other")} {
				tx.Queue(t.Context(), `INSERT INTO webhook_messages (id, team_id, type, payload, created_at)
					WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
					SELECT CAST(made AS UUID), $1, 'email.sent', '"ann@one.example"', 0
					FROM (SELECT i, '00000000-0000-7000-8000-00000000' || (i + 1000) AS made FROM n) x
					WHERE `+condition, db.ID(teamID))
			}
			_, err := tx.Exec(t.Context(), `ANALYZE webhook_messages`)
			return err
		}))
		a, err := erasure.Parse("ann@one.example")
		must(t, err)
		trace.Take()
		found, err := webhooks.EraseAddress(t.Context(), d, a, erasure.Scope{Teams: []string{team}})
		if err != nil || len(found) != 1 || found[0].N != 5 {
			t.Errorf("%+v, %v", found, err)
		}
		must(t, f.EraseTeam(t.Context(), team))
		looked := 0
		index := map[string]string{"sqlite": "webhook_messages_team", "postgres": "webhook_messages_default_team_id_id_idx"}
		for _, s := range trace.Take() {
			if !strings.Contains(s.SQL, "FROM webhook_messages WHERE team_id = ") {
				continue
			}
			looked++
			if plan := trace.Plan(t, s); !strings.Contains(plan, index[d.Engine()]) {
				t.Errorf("%s\n%s", s.SQL, plan)
			}
		}
		if looked < 4 {
			t.Errorf("%d statements read messages", looked)
		}
		if n := f.Count(`SELECT COUNT(*) FROM webhook_messages`); n != 4995 {
			t.Errorf("%d messages are left", n)
		}
	})
}
