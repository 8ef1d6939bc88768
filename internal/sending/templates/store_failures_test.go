package templates_test

import (
	"fmt"
	"testing"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/templates"
)

// state returns all stored templates, versions and their content as a string.
func state(t *testing.T, d *db.DB) (all string) {
	t.Helper()
	for _, query := range []string{
		`SELECT CAST(id AS TEXT) || name || alias || CAST(current_id AS TEXT) || COALESCE(CAST(published_id AS TEXT), '')
			|| versions || revision || deleted FROM templates
			ORDER BY id`,
		`SELECT CAST(id AS TEXT) || number || CAST(content_id AS TEXT) || published_at || variables FROM template_versions
			ORDER BY id`,
		`SELECT CAST(id AS TEXT) || kept FROM contents ORDER BY id`,
	} {
		rows, err := d.Query(t.Context(), query)
		list, err := db.Collect(rows, err, func(r db.Row) (s string, err error) {
			err = r.Scan(&s)
			return s, err
		})
		if err != nil {
			t.Fatal(err)
		}
		all += fmt.Sprintln(list)
	}
	return all
}

// If any database statement in an operation fails, the operation returns an error and leaves the database unchanged.
func TestOperationsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx := t.Context()
		s := templates.New(d, content.New(d), 1<<20)
		if _, err := s.Create(ctx, dbtest.ID("team"), order()); err != nil {
			t.Fatal(err)
		}
		other := order()
		for i, c := range []struct {
			name string
			act  func() error
		}{
			{"Create", func() error {
				other.Alias += "x"
				_, err := s.Create(ctx, dbtest.ID("team"), other)
				return err
			}},
			{"Get", func() error { _, _, err := s.Get(ctx, dbtest.ID("team"), "order"); return err }},
			{"List", func() error { _, _, err := s.List(ctx, dbtest.ID("team"), page.Page{}); return err }},
			{"Update", func() error {
				_, err := s.Update(ctx, dbtest.ID("team"), "order", templates.Change{HTML: new("<b>"),
					Variables: &[]templates.Declaration{}})
				return err
			}},
			{"Restore", func() error { _, err := s.Restore(ctx, dbtest.ID("team"), "order", "1"); return err }},
			{"Publish", func() error { _, err := s.Publish(ctx, dbtest.ID("team"), "order"); return err }},
			{"Published", func() error {
				_, err := templates.New(d, content.New(d), 1<<20).Published(ctx, dbtest.ID("team"), "order")
				return err
			}},
			{"Versions", func() error {
				_, _, _, err := s.Versions(ctx, dbtest.ID("team"), "order",
					page.Page{})
				return err
			}},
			{"Version", func() error { _, _, err := s.Version(ctx, dbtest.ID("team"), "order", "1"); return err }},
			{"Compare", func() error { _, err := s.Compare(ctx, dbtest.ID("team"), "order", "1", "2"); return err }},
			{"Render", func() error {
				_, err := s.Render(ctx, dbtest.ID("team"), "order", templates.RenderOptions{
					Variables: map[string]scalar.Value{"ITEM": scalar.OfText("x")}})
				return err
			}},
			{"Duplicate", func() error { _, err := s.Duplicate(ctx, dbtest.ID("team"), "order"); return err }},
			{"Delete", func() error { _, err := s.Delete(ctx, dbtest.ID("team"), "order"); return err }},
		} {
			before := state(t, d)
			failed := trace.EachBroken(t, nil, c.act, func(err error) {
				if err != nil && state(t, d) != before {
					t.Errorf("%d, %s fails and has changed something: %v", i, c.name, err)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
		}
		if trace.EachBroken(t, nil, func() error { return s.Sweep(ctx) }, nil) < 1 {
			t.Error("Sweep never fails")
		}
		var n int
		err := d.QueryRow(ctx, `SELECT COUNT(*) FROM template_versions v WHERE NOT EXISTS (SELECT 1 FROM templates t
			WHERE t.id = v.template_id AND NOT t.deleted)`).Scan(&n)
		if err != nil || n != 0 {
			t.Errorf("%d versions of deleted templates are left, %v", n, err)
		}
		if trace.EachBroken(t, nil, func() error { return s.EraseTeam(ctx, dbtest.ID("team")) }, nil) < 1 {
			t.Error("EraseTeam never fails")
		}
		if _, _, err := s.Get(ctx, dbtest.ID("team"), "orderx"); fault.KindOf(err) != fault.NotFound {
			t.Errorf("after the team was erased: %v", err)
		}
	})
}
