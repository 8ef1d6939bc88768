package db_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Sizes reports a size for each table, and the size grows with the table's content.
func TestSizes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		before, err := d.Sizes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		err = d.Update(t.Context(), func(tx *db.Tx) error {
			for i := range 100 {
				tx.Queue(t.Context(), `INSERT INTO teams (id, short_id, name, email, rate_limit, suspended, created_at)
					VALUES ($1, $2, $3, '', 0, FALSE, 0)`, db.ID(id.New()), int64(i+1), strings.Repeat("x", 1500))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		after, err := d.Sizes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for table, size := range after {
			grew := size - before[table]
			if table == "teams" && (grew < 100*1000 || grew > 100*10_000) || table != "teams" && grew != 0 {
				t.Errorf("%s grew by %d bytes", table, grew)
			}
		}
		if len(after) < 20 || before["teams"] == 0 {
			t.Errorf("%v", after)
		}
	})
}
