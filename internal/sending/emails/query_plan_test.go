package emails

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Queries for an email's events use the index on the email id. If SQLite used the index on the event time, it would
// read all of the team's events on its only write connection.
func TestEventsAreFoundByTheirEmail(t *testing.T) {
	d := dbtest.SQLite(t)
	asked := map[string][]any{selectBefore: {db.ID(dbtest.ID("e1")), db.ID(dbtest.ID("team")), []string{"a", "b"}}}
	for _, table := range emailTables {
		asked[deleteOfEmails(table)] = []any{db.ID(dbtest.ID("team")), db.IDs([]string{dbtest.ID("e1"), dbtest.ID("e2")})}
	}
	for text, args := range asked {
		rows, err := d.Query(t.Context(), `EXPLAIN QUERY PLAN `+text, args...)
		plan, err := db.Collect(rows, err, func(r db.Row) (s string, err error) {
			var a, b, c any
			err = r.Scan(&a, &b, &c, &s)
			return s, err
		})
		if err != nil {
			t.Fatal(err)
		}
		if s := fmt.Sprint(plan); !strings.Contains(s, "email_id=") || strings.Contains(s, "_time") {
			t.Errorf("%s\n%s", text, s)
		}
	}
}
