package db

import (
	"context"
	"io/fs"
)

// Migrations are the program's migrations.
var Migrations fs.FS = migrations

// MigrateFrom is Migrate with the migrations of another program.
func (d *DB) MigrateFrom(ctx context.Context, files fs.FS) ([]string, error) {
	return d.migrateFrom(ctx, files)
}
