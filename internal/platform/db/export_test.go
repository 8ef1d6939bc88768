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

// ForgetWrites makes the next call of Ready look anew whether SQLite can write.
func (d *DB) ForgetWrites() {
	s, _ := sqliteOf(d.e)
	s.writes.failed()
	s.writes.mu.Lock()
	defer s.writes.mu.Unlock()
	if p := s.writes.last; p != nil {
		<-p.done
		p.ended = p.ended.Add(-probeAgain)
	}
}
