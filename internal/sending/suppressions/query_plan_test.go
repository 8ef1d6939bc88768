package suppressions_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// The query that lists the entries with a rare origin uses an index and does not read the other entries.
func TestRareOriginGoesByIndex(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := suppressions.New(d, &events.Recorder{})
		const first = "00000000-0000-7000-8000-00000000" // of each id
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO suppressions (id, team_id, address, origin, source_id, created_at)
				WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)
				SELECT CAST(made AS UUID), $2, 'to' || i, CASE WHEN i < 4 THEN 'complaint' ELSE 'bounce' END, NULL, 0
				FROM (SELECT i, CAST($1 AS TEXT) || (i + 1000) AS made FROM n) x`, first,
				db.ID(dbtest.ID("team")))
			if err == nil {
				_, err = tx.Exec(t.Context(), `ANALYZE suppressions`)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range []page.Page{{Limit: 2}, {Limit: 2, After: first + "1003"}, {Limit: 2, Before: first + "1001"}, {}} {
			trace.Take()
			all, _, err := s.List(t.Context(), dbtest.ID("team"), suppressions.Complaint, p)
			if err != nil || len(all) < 2 {
				t.Errorf("%+v: %d, %v", p, len(all), err)
			}
			for _, asked := range trace.Take() {
				plan := trace.Plan(t, asked)
				if !strings.Contains(plan, "suppressions_origin") || strings.Contains(plan, "TEMP B-TREE") ||
					strings.Contains(plan, "Sort") {
					t.Errorf("%+v: %s\n%s", p, asked.SQL, plan)
				}
			}
		}
	})
}
