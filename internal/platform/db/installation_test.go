package db_test

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The first of several nodes decides on a fact.
func TestKeepFact(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if value, err := d.Fact(t.Context(), "colour"); value != "" || err != nil {
			t.Errorf("before: %q, %v", value, err)
		}
		for _, value := range []string{"red", "blue"} {
			if kept, err := d.KeepFact(t.Context(), "colour", value); kept != "red" || err != nil {
				t.Errorf("%s: %q, %v", value, kept, err)
			}
		}
		if value, err := d.Fact(t.Context(), "colour"); value != "red" || err != nil {
			t.Errorf("after: %q, %v", value, err)
		}
	})
}

func TestSetFact(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, value := range []string{"red", "blue", "", "green"} {
			if err := d.SetFact(t.Context(), "colour", value); err != nil {
				t.Error(err)
			}
			if kept, err := d.Fact(t.Context(), "colour"); kept != value || err != nil {
				t.Errorf("%q: %q, %v", value, kept, err)
			}
		}
	})
}

// A program works on a database to which a later program has added something. It refuses one from which a later program
// has taken something away.
func TestOldestProgram(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		later := fstest.MapFS{}
		names, err := fs.Glob(db.Migrations, "migrations/"+d.Engine()+"/*.sql")
		if err != nil {
			t.Fatal(err)
		}
		add := func(name, text string) {
			later["migrations/"+d.Engine()+"/"+name+".sql"] = &fstest.MapFile{Data: []byte(text)}
		}
		for _, name := range names {
			text, err := fs.ReadFile(db.Migrations, name)
			if err != nil {
				t.Fatal(err)
			}
			later[name] = &fstest.MapFile{Data: text}
		}
		check := func(after, want string) {
			t.Helper()
			_, migrated := d.Migrate(t.Context())
			for _, err := range []error{migrated, d.CheckProgram(t.Context())} {
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("after %s: %v", after, err)
				}
			}
		}
		check("nothing", "")
		add("9001_more", "CREATE TABLE more (id INTEGER);\n")
		if _, err := d.MigrateFrom(t.Context(), later); err != nil {
			t.Fatal(err)
		}
		check("an expansion", "")
		add("9002_less", "-- Now without the table.\n-- oldest program: 9001_more v0.9.0\nDROP TABLE more;\n")
		if applied, err := d.MigrateFrom(t.Context(), later); err != nil || len(applied) != 1 {
			t.Fatal(applied, err)
		}
		check("a contraction", "start v0.9.0 or a later release")
		if applied, err := d.MigrateFrom(t.Context(), later); err != nil || len(applied) > 0 {
			t.Errorf("the later program: %v, %v", applied, err)
		}
		delete(later, "migrations/"+d.Engine()+"/9002_less.sql")
		if applied, err := d.MigrateFrom(t.Context(), later); err != nil || len(applied) > 0 {
			t.Errorf("the program before the contraction: %v, %v", applied, err)
		}
	})
}
