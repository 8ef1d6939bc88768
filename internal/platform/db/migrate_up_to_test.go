package db

import (
	"context"
	"io/fs"
	"testing"
	"testing/fstest"
)

// MigrateUpTo applies migrations up to the given one, to test a migration beside a node of the previous release.
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
