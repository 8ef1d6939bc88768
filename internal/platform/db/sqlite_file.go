package db

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
)

// OpenFile opens an SQLite file for reading only. A read transaction of the result is a snapshot. If fixed is true, no
// process may change the file while it is open; SQLite then needs no other files beside it.
func OpenFile(path string, fixed bool) (*sql.DB, error) {
	q := url.Values{"mode": {"ro"}, "_pragma": {"busy_timeout(10000)", "query_only(1)", "cache_size(-16384)"}}
	if fixed {
		q.Set("immutable", "1")
	}
	return sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?"+q.Encode())
}

// CheckFile reads a whole SQLite file that no process has open, and returns an error if the file is damaged, or if a
// row refers to a row that is missing.
func CheckFile(ctx context.Context, path string) error {
	d, err := OpenFile(path, true)
	if err != nil {
		return err
	}
	defer d.Close()
	for _, check := range []string{"PRAGMA integrity_check(3)", `SELECT 'a row of ' || "table" || ' refers to a row of ' ||
		parent || ' that is missing' FROM pragma_foreign_key_check LIMIT 3`} {
		found, err := texts(ctx, d, check)
		if err != nil {
			return fmt.Errorf("check the database: %w", err)
		}
		if len(found) > 0 && found[0] != "ok" {
			return fmt.Errorf("the database is damaged: %s", strings.Join(found, "; "))
		}
	}
	return nil
}

// CountRows returns the number of rows of each table of an SQLite file that no process changes.
func CountRows(ctx context.Context, path string) (map[string]int64, error) {
	d, err := OpenFile(path, true)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	tables, err := texts(ctx, d, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'
		ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list the tables: %w", err)
	}
	counts := map[string]int64{}
	for _, t := range tables {
		var n int64
		if err := d.QueryRowContext(ctx, `SELECT COUNT(*) FROM "`+t+`"`).Scan(&n); err != nil {
			return nil, fmt.Errorf("count the rows of %s: %w", t, err)
		}
		counts[t] = n
	}
	return counts, nil
}

// FactOfFile returns a fact about the installation in an SQLite file that no process changes, or "".
func FactOfFile(ctx context.Context, path, name string) (string, error) {
	d, err := OpenFile(path, true)
	if err != nil {
		return "", err
	}
	defer d.Close()
	tables, err := texts(ctx, d, `SELECT name FROM sqlite_schema WHERE name = 'installation'`)
	if err != nil || len(tables) == 0 {
		return "", err
	}
	values, err := texts(ctx, d, `SELECT value FROM installation WHERE name = $1`, name)
	if err != nil || len(values) == 0 {
		return "", err
	}
	return values[0], nil
}

// texts returns the first column of a query.
func texts(ctx context.Context, d *sql.DB, query string, args ...any) (all []string, err error) {
	rows, err := d.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, rows.Err()
}
