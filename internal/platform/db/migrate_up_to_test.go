package db

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"
)

// MigrateUpTo applies all migrations up to and including the given one. Tests use MigrateUpTo to run a migration while
// a node on the previous release is running.
func MigrateUpTo(t *testing.T, d *DB, last string) {
	t.Helper()
	files := fstest.MapFS{}
	names, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if name > "migrations/"+last {
			continue
		}
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: text}
	}
	if _, err := d.migrateFrom(context.Background(), files); err != nil {
		t.Fatal(err)
	}
}
