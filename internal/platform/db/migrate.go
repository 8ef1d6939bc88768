package db

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// migrations has a directory for each engine. A migration that concerns both engines has the same name in both.
//
//go:embed migrations/postgres/*.sql migrations/sqlite/*.sql
var migrations embed.FS

// firstMigration creates the whole schema of the first release.
const firstMigration = "0001_first"

// errOlderSchema is returned for a database that a build before the first release created.
var errOlderSchema = errors.New("the database was created by a build before the first release, and its tables cannot " +
	"be converted: export its contacts and suppressions with that build (postrider export), start this build with an " +
	"empty database, and import them there; docs/operating/upgrades.md describes the steps")

// Migrate brings the schema up to date and returns the names of the migrations that it applied. All pending migrations
// run in one transaction under a lock. Nodes that start at the same time therefore apply migrations only once, and a
// failed migration changes nothing. Migrate returns an error if the text of an applied migration has changed, because
// released migrations must never change. Migrate also returns an error if the database was created by a build before
// the first release, or needs a later program than this one.
func (d *DB) Migrate(ctx context.Context) ([]string, error) {
	return d.migrateFrom(ctx, migrations)
}

// MigrationsChecksum returns a checksum of the names and texts of all migrations for PostgreSQL.
func MigrationsChecksum() (string, error) {
	names, err := fs.Glob(migrations, "migrations/postgres/*.sql")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, name := range names {
		text, err := fs.ReadFile(migrations, name)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// migration is a script and its checksum.
type migration struct{ name, text, checksum string }

// readMigrations returns an engine's migrations in their order.
func readMigrations(files fs.FS, engine string) (all []migration, err error) {
	names, err := fs.Glob(files, "migrations/"+engine+"/*.sql") // sorted by name
	if err != nil {
		return nil, err
	}
	for _, file := range names {
		text, err := fs.ReadFile(files, file)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(text)
		all = append(all, migration{strings.TrimSuffix(path.Base(file), ".sql"), string(text), hex.EncodeToString(sum[:])})
	}
	return all, nil
}

func (d *DB) migrateFrom(ctx context.Context, files fs.FS) ([]string, error) {
	all, err := readMigrations(files, d.Engine())
	if err != nil {
		return nil, err
	}
	// PostgreSQL refuses CREATE TABLE IF NOT EXISTS to a user who may not create tables, even if the table exists. Such a
	// user can use a database that is up to date. If this read fails, the transaction below says why.
	have := map[string]string{}
	empty, err := d.IsEmpty(ctx) // because to read a missing table would write an error to the server's log
	if errors.Is(err, errForeign) {
		return nil, err
	}
	if err == nil && !empty {
		if have, err = appliedMigrations(ctx, d.q); err == nil {
			if err := d.mayUse(ctx, all); err != nil {
				return nil, err
			}
		}
	}
	if err == nil && !slices.ContainsFunc(all, func(m migration) bool { return have[m.name] != m.checksum }) {
		return nil, nil
	}
	var applied []string
	err = d.e.migrate(ctx, func(w writer) error {
		applied = nil
		if _, err := w.exec(ctx, `CREATE TABLE IF NOT EXISTS migrations (
			name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)`, nil); err != nil {
			return err
		}
		have, err := appliedMigrations(ctx, w)
		if err != nil {
			return err
		}
		if _, ok := have[firstMigration]; len(have) > 0 && !ok {
			return errOlderSchema
		}
		for _, m := range all {
			if old, ok := have[m.name]; ok {
				if old != m.checksum && m.name == firstMigration {
					return errOlderSchema
				}
				if old != m.checksum {
					return fmt.Errorf("migration %s was applied with another text: run the release that applied it, "+
						"or restore its file", m.name)
				}
				continue
			}
			if err := runScript(ctx, w, m.text); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
			if _, err := w.exec(ctx, `INSERT INTO migrations (name, checksum, applied_at) VALUES ($1, $2, $3)`,
				[]any{m.name, m.checksum, Now().UnixMicro()}); err != nil {
				return err
			}
			if oldest := m.oldestProgram(); oldest != "" {
				if _, err := w.exec(ctx, `INSERT INTO installation (name, value) VALUES ($1, $2)
					ON CONFLICT (name) DO UPDATE SET value = excluded.value`, []any{factOldest, oldest}); err != nil {
					return err
				}
			}
			applied = append(applied, m.name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("migrate: %w", err)
	}
	return applied, nil
}

var errForeign = errors.New("the database has a table named migrations that another program made: set database_url " +
	"or data_dir to a database that only Postrider uses")

// IsEmpty reports whether no migration was ever applied to the database. If another program's table has the name of the
// table of migrations, IsEmpty returns an error.
func (d *DB) IsEmpty(ctx context.Context) (bool, error) {
	query := `SELECT (SELECT COUNT(*) FROM sqlite_schema WHERE name = 'migrations'), (SELECT COUNT(*)
		FROM pragma_table_info('migrations') WHERE name IN ('name', 'checksum', 'applied_at'))`
	if d.Engine() == "postgres" {
		query = `SELECT COUNT(to_regclass('migrations')), (SELECT COUNT(*) FROM pg_attribute
			WHERE attrelid = to_regclass('migrations') AND attname IN ('name', 'checksum', 'applied_at'))`
	}
	var tables, columns int
	if err := d.QueryRow(ctx, query).Scan(&tables, &columns); err != nil {
		return false, fmt.Errorf("look for the table of migrations: %w", err)
	}
	if tables > 0 && columns < 3 {
		return false, errForeign
	}
	return tables == 0, nil
}

func appliedMigrations(ctx context.Context, q querier) (map[string]string, error) {
	rows, err := q.query(ctx, `SELECT name, checksum FROM migrations`, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	have := map[string]string{}
	for rows.Next() {
		var name, sum string
		if err := rows.Scan(&name, &sum); err != nil {
			return nil, err
		}
		have[name] = sum
	}
	return have, rows.Err()
}

// runScript runs the statements of a migration. Each statement in a migration ends with ";" at the end of a line.
func runScript(ctx context.Context, w writer, text string) error {
	for stmt := range strings.SplitSeq(text, ";\n") {
		var lines []string
		for line := range strings.SplitSeq(stmt, "\n") {
			if !strings.HasPrefix(strings.TrimSpace(line), "--") && strings.TrimSpace(line) != "" {
				lines = append(lines, line)
			}
		}
		if len(lines) == 0 {
			continue
		}
		if _, err := w.exec(ctx, strings.Join(lines, "\n"), nil); err != nil {
			return fmt.Errorf("%q: %w", lines[0], err)
		}
	}
	return nil
}
