package eventstream

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Each batch of the sweep reads only the rows that it deletes, however many rows other teams have.
func TestSweepByTheIndex(t *testing.T) {
	d := dbtest.SQLite(t)
	rows, err := d.Query(t.Context(), `EXPLAIN QUERY PLAN `+deleteOldest, db.NoID, 500)
	plan, err := db.Collect(rows, err, func(r db.Row) (text string, err error) {
		var id, parent, unused int
		err = r.Scan(&id, &parent, &unused, &text)
		return text, err
	})
	got := strings.Join(plan, "\n")
	if err != nil || strings.Count(got, "INDEX live_messages_id (id") != 2 || strings.Contains(got, "SCAN live_messages") {
		t.Errorf("%s, %v", got, err)
	}
}
