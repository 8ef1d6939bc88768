package domains

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The queries that run for each incoming message and each added domain use an index.
func TestQueriesUseTheirIndexes(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, _ *dbtest.Trace) {
		for _, c := range []struct {
			text, index string
			args        []any
		}{
			{selectNamed, "domains_name", []any{[]string{"send.acme.example", "acme.example"}}},
			{selectNamesOfOthers,
				map[bool]string{true: "sqlite_autoindex_domain_names_1", false: "domain_names_pkey"}[d.Alone()],
				[]any{db.ID(dbtest.ID("team")), db.NoID, []string{"send.acme.example", "acme.example"}}},
			{selectClaimedSince, "domain_claims_name", []any{"acme.example", 0}},
			{countUnproved, "domains_unproved", []any{db.ID(dbtest.ID("team")), 1000}},
			{selectKeysOfAll, "domain_keys_selector", []any{db.IDs([]string{dbtest.ID("one"), dbtest.ID("two")})}},
			{selectRotationsDue, "domains_rotate", []any{0, 500}},
			{selectRotationsFar, "domains_rotate", []any{0, 500}},
			{selectStalled, "domain_keys_stepped", []any{0, 500}},
			{selectAhead, "domain_keys_stepped", []any{0, 500}},
			{selectSigningRecords,
				map[bool]string{true: "sqlite_autoindex_domains_1", false: "domains_pkey"}[d.Alone()],
				[]any{db.IDs([]string{dbtest.ID("one"), dbtest.ID("two")})}},
		} {
			var plan string
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				explain, column := "EXPLAIN QUERY PLAN ", 3
				if !d.Alone() {
					explain, column = "EXPLAIN ", 0
					// The tables in this test are empty. With sequential scans disabled, PostgreSQL chooses the same plan that it
					// would use for many rows.
					if _, err := tx.Exec(t.Context(), `SET LOCAL enable_seqscan = off`); err != nil {
						return err
					}
				}
				rows, err := tx.Query(t.Context(), explain+c.text, c.args...)
				lines, err := db.Collect(rows, err, func(r db.Row) (string, error) {
					var line string
					var n [3]int
					dest := []any{&n[0], &n[1], &n[2], &line}[3-column:]
					return line, r.Scan(dest...)
				})
				plan = strings.Join(lines, "\n")
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(plan, c.index) {
				t.Errorf("%s\nis not found by %s:\n%s", c.text, c.index, plan)
			}
		}
	})
}
