package contacts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestPagesGoByContactIDs checks that the statements for a page of a broadcast look up each contact by its id. Until
// PostgreSQL has statistics of a new import, it may otherwise choose to read all of a team's contacts, or all values of
// a property, for each page.
func TestPagesGoByContactIDs(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFiltered(t, d)
		ctx := t.Context()
		var all []*Contact
		values := valueColumns[string]{}
		for i := range 20_000 {
			c := &Contact{ID: id.New(), TeamID: f.team, Address: fmt.Sprintf("%d@x.example", i), CreatedAt: f.now}
			all = append(all, c)
			values.add(valueKey{c.ID, f.property["plan"]}, "pro")
		}
		if err := d.Update(ctx, func(tx *db.Tx) error {
			_, err := insertContacts(ctx, tx, f.team, all)
			upsertTexts(ctx, tx, f.team, &values)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, c := range all[1000:1500] {
			ids = append(ids, c.ID)
		}
		check := func(what string, err error) {
			t.Helper()
			if err != nil {
				t.Fatal(what, err)
			}
			for _, s := range trace.Take() {
				plan := trace.Plan(t, s)
				for _, wrong := range []string{"contacts_team", "contact_texts_value", "contact_numbers_value", "Seq Scan", "SCAN c"} {
					if strings.Contains(plan, wrong) {
						t.Errorf("%s: %s\n%s", what, s.SQL, plan)
					}
				}
			}
		}
		trace.Take()
		of := source{teamID: f.team, now: f.now}
		found, err := contactsAmong(ctx, d.Reader, &of, ids, true)
		check("contacts", err)
		properties := []Property{{ID: f.property["plan"], Name: "plan"}, {ID: f.property["age"], Name: "age"}}
		shown, err := valuesAmong(ctx, d.Reader, f.team, ids, properties, 1<<20)
		check("values", err)
		locked, err := textsOf(ctx, d.Reader, f.team, ids, []string{f.property["plan"]})
		check("values of an import", err)
		check("engagement", d.Update(ctx, func(tx *db.Tx) error { countMailed(ctx, tx, f.team, ids); return nil }))
		if len(found) != 500 || len(shown) != 500 || len(locked) != 500 {
			t.Errorf("found %d contacts, %d and %d values", len(found), len(shown), len(locked))
		}
	})
}
