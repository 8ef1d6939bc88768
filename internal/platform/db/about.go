package db

import (
	"context"
	"fmt"
	"time"
)

// ServerVersion returns the version of the database program: SQLite's in this program, or that of the PostgreSQL server.
func (d *DB) ServerVersion(ctx context.Context) (version string, err error) {
	query := `SELECT version()`
	if d.Alone() {
		query = `SELECT 'SQLite ' || sqlite_version()`
	}
	if err := d.QueryRow(ctx, query).Scan(&version); err != nil {
		return "", fmt.Errorf("ask for the version of the database: %w", err)
	}
	return version, nil
}

// AppliedMigration is a migration of the database.
type AppliedMigration struct {
	Name      string
	AppliedAt time.Time
}

// AppliedMigrations returns the migrations that were applied to the database, by name. A database without tables causes
// an error.
func (d *DB) AppliedMigrations(ctx context.Context) ([]AppliedMigration, error) {
	rows, err := d.Query(ctx, `SELECT name, applied_at FROM migrations ORDER BY name`)
	return Collect(rows, err, func(r Row) (m AppliedMigration, err error) {
		var at int64
		err = r.Scan(&m.Name, &at)
		m.AppliedAt = Time(at)
		return m, err
	})
}
