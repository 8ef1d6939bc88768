package emails

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
)

// Events of an email are found by the email: SQLite would read all events of the team by the index of their times, in
// its only writer.
func TestEventsAreFoundByTheirEmail(t *testing.T) {
	d := dbtest.SQLite(t)
	texts := []string{selectBefore + `($3, $4)`}
	for _, table := range emailTables {
		texts = append(texts, strings.Replace(deleteOfEmails(table), "$1", "$2", 1)+`($1, $3, $4)`)
	}
	for _, text := range texts {
		rows, err := d.Query(t.Context(), `EXPLAIN QUERY PLAN `+text, "e1", "team", "a", "b")
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
