package db_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The migrations create the same indexes on both engines, except for those that PostgreSQL needs for its partitions, and
// for those of the order of bytes, in which SQLite's indexes are anyway.
// The test does not compare primary key indexes, whose names differ if a migration copied the table on only one engine.
func TestEnginesHaveTheSameIndexes(t *testing.T) {
	names := func(d *db.DB, text string) (all []string) {
		rows, err := d.Query(t.Context(), text)
		all, err = db.Collect(rows, err, func(r db.Row) (name string, err error) {
			err = r.Scan(&name)
			return name, err
		})
		if err != nil || len(all) == 0 {
			t.Fatal(all, err)
		}
		return all
	}
	sqlite := names(dbtest.SQLite(t), `SELECT tbl_name || ' ' || name FROM sqlite_schema WHERE type = 'index'
		AND sql IS NOT NULL ORDER BY 1`)
	postgres := names(dbtest.Postgres(t), `SELECT t.relname || ' ' || c.relname COLLATE "C" FROM pg_index i
		JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
		WHERE c.relnamespace = current_schema()::regnamespace AND NOT c.relispartition
		AND NOT EXISTS (SELECT 1 FROM pg_constraint k WHERE k.conindid = i.indexrelid) ORDER BY 1`)
	postgres = slices.DeleteFunc(postgres, func(name string) bool {
		return strings.HasSuffix(name, "_range") || strings.HasSuffix(name, "_default_id") ||
			strings.HasSuffix(name, "_default_last") || strings.HasSuffix(name, "_bytes")
	})
	if diff := cmp.Diff(sqlite, postgres); diff != "" {
		t.Errorf("SQLite has, and PostgreSQL has: %s", diff)
	}
}
