package webhooks

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Each batch of the sweep reads only the rows that it deletes.
func TestSweepReadsWhatItRemoves(t *testing.T) {
	d, _ := dbtest.PostgresTraced(t)
	const messages, limit = 2000, 50
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `INSERT INTO webhook_attempts (webhook_id, message_id, id, team_id, status_code, response,
			error, started_at, duration) SELECT $2, CAST(LPAD(n::text, 32, '0') AS UUID), $2, $3, 200, '', '', 0, 0
			FROM generate_series(1, $1) n`, messages, db.ID(dbtest.ID("w")), db.ID(dbtest.ID("team")))
		tx.Queue(t.Context(), `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries, next_at,
			finished_at) SELECT $2, CAST(LPAD(n::text, 32, '0') AS UUID), $3, 'c', 'success', 1, 0, 1
			FROM generate_series(1, $1) n`, messages, db.ID(dbtest.ID("w")), db.ID(dbtest.ID("team")))
		tx.Queue(t.Context(), `ANALYZE webhook_attempts, webhook_deliveries`)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"webhook_attempts", "webhook_deliveries"} {
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `SET LOCAL enable_seqscan = off`)
			rows, err := tx.Query(t.Context(), `EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF) `+sweepOf(table),
				db.ID(dbtest.ID("w")), db.ID(dbtest.ID("team")), limit)
			plan, err := db.Collect(rows, err, func(r db.Row) (line string, err error) {
				err = r.Scan(&line)
				return line, err
			})
			text := strings.Join(plan, "\n")
			if !strings.Contains(text, fmt.Sprintf("rows=%d", limit)) || strings.Contains(text, "Removed") ||
				strings.Contains(text, fmt.Sprintf("rows=%d", messages)) {
				t.Errorf("%s:\n%s", table, text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		var left int
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM `+table).Scan(&left); err != nil || left != messages-limit {
			t.Errorf("%d rows of %s are left, %v", left, table, err)
		}
	}
}
