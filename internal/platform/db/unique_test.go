package db_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Each key and unique index contains the team or the id of a row, or testdata/unique_everywhere.txt says why it holds
// over all teams.
func TestUniqueEverywhere(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/unique_everywhere.txt")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for line := range strings.Lines(string(text)) {
		if key, why, ok := strings.Cut(line, ": "); !strings.HasPrefix(line, "#") {
			if want = append(want, key); !ok || strings.TrimSpace(why) == "" {
				t.Errorf("%q gives no reason", line)
			}
		}
	}
	d := dbtest.SQLite(t)
	rows, err := d.Query(t.Context(), `SELECT m.name, i.name, c.name FROM sqlite_schema m, pragma_index_list(m.name) i,
		pragma_index_info(i.name) c WHERE m.type = 'table' AND i."unique" AND m.name <> 'migrations'
		ORDER BY m.name, i.name, c.seqno`)
	columns := map[[2]string][]string{}
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var table, index, column string
		err = r.Scan(&table, &index, &column)
		columns[[2]string{table, index}] = append(columns[[2]string{table, index}], column)
		return none, err
	})
	if err != nil || len(columns) < 60 {
		t.Fatalf("%d keys, %v", len(columns), err)
	}
	isID := func(column string) bool {
		return column == "id" || strings.HasSuffix(column, "_id") && column != "short_id"
	}
	var got []string
	for of, names := range columns {
		if !slices.ContainsFunc(names, isID) {
			got = append(got, of[0]+" ("+strings.Join(names, ", ")+")")
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("keys without a team or an id (-listed +found): %s", diff)
	}
}
