package promote

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	changesTable = "move_changes"
	keyMax       = 6 // columns of the longest primary key; move_changes has as many

	changesStep = 20_000 // maximum number of entries of move_changes that a transaction deletes
)

// queryer is an SQLite handle, connection or transaction.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect reads all rows of a query.
func collect[T any](ctx context.Context, q queryer, scan func(*sql.Rows) (T, error), query string, args ...any) (
	all []T, err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		x, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, x)
	}
	return all, rows.Err()
}

func scanText(r *sql.Rows) (s string, err error) {
	err = r.Scan(&s)
	return s, err
}

// sourceMove returns the id of the move that has begun, or "". It returns an error if that move leads to another place.
func sourceMove(ctx context.Context, d *db.DB, place string) (string, error) {
	begun, err := d.Fact(ctx, db.FactMoveID)
	if err != nil || begun == "" {
		return "", err
	}
	id, to, _ := strings.Cut(begun, " ")
	if to != place {
		return "", fmt.Errorf("a move to %s has begun: finish it, or end it with `postrider promote --cancel`", to)
	}
	return id, nil
}

// beginSource creates the table of changes and the triggers that write to it.
func beginSource(ctx context.Context, d *db.DB, id, place string, tables []*table) error {
	var columns []string
	for i := range keyMax {
		columns = append(columns, fmt.Sprintf("k%d", i+1))
	}
	return d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `CREATE TABLE `+changesTable+` (seq INTEGER PRIMARY KEY, tab TEXT NOT NULL, `+
			strings.Join(columns, ", ")+`)`)
		for _, t := range tables {
			for _, text := range changeTriggers(t) {
				tx.Queue(ctx, text)
			}
		}
		db.SetFact(ctx, tx, db.FactMoveID, id+" "+place)
		return nil
	})
}

// changeTriggers returns the statements that create the triggers of a table, and of its joined table.
func changeTriggers(t *table) []string {
	all := triggersOf(t, t.name, t.keyNames())
	if t.joined != nil {
		all = append(all, triggersOf(t, t.joined.name, t.joined.key)...)
	}
	return all
}

// triggersOf returns the statements that create the triggers of the table on, whose given columns have a key of t.
func triggersOf(t *table, on string, key []string) []string {
	var columns, older, newer, differ []string
	for i, name := range key {
		columns = append(columns, fmt.Sprintf("k%d", i+1))
		older, newer = append(older, "OLD."+quoted(name)), append(newer, "NEW."+quoted(name))
		differ = append(differ, "OLD."+quoted(name)+" IS NOT NEW."+quoted(name))
	}
	note := func(values []string, where string) string {
		return fmt.Sprintf("INSERT INTO %s (tab, %s) SELECT '%s', %s%s; ", changesTable, strings.Join(columns, ", "), t.name,
			strings.Join(values, ", "), where)
	}
	create := func(event, do string) string {
		return fmt.Sprintf("CREATE TRIGGER %s_%s_%s AFTER %s ON %s BEGIN %sEND", changesTable, on, strings.ToLower(event),
			event, on, do)
	}
	return []string{create("INSERT", note(newer, "")), create("DELETE", note(older, "")),
		create("UPDATE", note(newer, "")+note(older, " WHERE "+strings.Join(differ, " OR ")))}
}

const selectTriggers = `SELECT name FROM sqlite_schema WHERE type = 'trigger' AND name LIKE '` + changesTable + `%'`

// cancelSource removes everything of a move.
func cancelSource(ctx context.Context, d *db.DB) error {
	return d.Update(ctx, func(tx *db.Tx) error {
		rows, err := tx.Query(ctx, selectTriggers)
		names, err := db.Collect(rows, err, func(r db.Row) (s string, err error) {
			err = r.Scan(&s)
			return s, err
		})
		if err != nil {
			return err
		}
		for _, name := range names {
			tx.Queue(ctx, `DROP TRIGGER `+quoted(name))
		}
		tx.Queue(ctx, `DROP TABLE IF EXISTS `+changesTable)
		db.SetFact(ctx, tx, db.FactMoveID, "")
		return nil
	})
}

// closeSource makes each table refuse changes, and stores where the installation is now.
func closeSource(ctx context.Context, c *sql.Conn, place string, tables []*table) error {
	names, err := collect(ctx, c, scanText, selectTriggers)
	if err != nil {
		return err
	}
	exec := func(text string, args ...any) {
		if err == nil {
			_, err = c.ExecContext(ctx, text, args...)
		}
	}
	for _, name := range names {
		exec(`DROP TRIGGER ` + quoted(name))
	}
	exec(`DROP TABLE ` + changesTable)
	exec(`INSERT INTO installation (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value`,
		db.FactMovedTo, place)
	message := strings.ReplaceAll("this installation was moved to "+place, "'", "''")
	closed := []string{"installation"}
	for _, t := range tables {
		if closed = append(closed, t.name); t.joined != nil {
			closed = append(closed, t.joined.name)
		}
	}
	for _, name := range closed {
		for _, event := range []string{"INSERT", "UPDATE", "DELETE"} {
			exec(fmt.Sprintf("CREATE TRIGGER moved_%s_%s BEFORE %s ON %s BEGIN SELECT RAISE(ABORT, '%s'); END", name,
				strings.ToLower(event), event, name, message))
		}
	}
	return err
}

// sourceColumns returns the sorted names of the columns of each table that is copied.
func sourceColumns(ctx context.Context, q queryer) (map[string][]string, error) {
	type pair struct{ table, column string }
	all, err := collect(ctx, q, func(r *sql.Rows) (p pair, err error) {
		err = r.Scan(&p.table, &p.column)
		return p, err
	}, `SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table'
		AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY 1, 2`)
	columns := map[string][]string{}
	for _, p := range all {
		if !slices.Contains(left, p.table) {
			columns[p.table] = append(columns[p.table], p.column)
		}
	}
	return columns, err
}

// oldestRow returns the creation time of the oldest row of the partitioned tables, or the current time.
func oldestRow(ctx context.Context, q queryer) (time.Time, error) {
	all, err := collect(ctx, q, func(r *sql.Rows) (at sql.NullInt64, err error) {
		err = r.Scan(&at)
		return at, err
	}, `SELECT MIN(created_at) FROM emails UNION ALL SELECT MIN(created_at) FROM request_logs
		UNION ALL SELECT MIN(created_at) FROM webhook_messages`)
	oldest := time.Now()
	for _, at := range all {
		if at.Valid && time.UnixMicro(at.Int64).Before(oldest) {
			oldest = time.UnixMicro(at.Int64)
		}
	}
	return oldest, err
}

// errStop ends readRows early.
var errStop = errors.New("enough rows")

// readPage returns the next rows of a table in the order of its key, after the given key, which is nil at the start. It
// stops after pageRows rows or pageSize bytes.
func readPage(ctx context.Context, q queryer, t *table, after []any) (page [][]any, err error) {
	query, keys := `SELECT `+t.sourceNames()+` FROM `+t.source(), list("t.", t.keyNames())
	var args []any
	if after != nil {
		var marks []string
		for i, v := range after {
			marks, args = append(marks, fmt.Sprintf("$%d", i+1)), append(args, toSQLite(v))
		}
		query += ` WHERE (` + keys + `) > (` + strings.Join(marks, ", ") + `)`
	}
	size := 0
	err = readRows(ctx, q, t, func(row []any) error {
		page = append(page, row)
		if size += rowSize(row); size > pageSize {
			return errStop
		}
		return nil
	}, query+fmt.Sprintf(` ORDER BY %s LIMIT %d`, keys, pageRows), args...)
	if errors.Is(err, errStop) {
		err = nil
	}
	return page, err
}

// readRows calls fn with each row of a query for the columns of a table. The row belongs to fn.
func readRows(ctx context.Context, q queryer, t *table, fn func(row []any) error, query string, args ...any) error {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	to := make([]any, len(t.columns))
	for rows.Next() {
		row := make([]any, len(t.columns))
		for i := range row {
			to[i] = &row[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		if err := t.fromSQLite(row); err != nil {
			return fmt.Errorf("the row of %s with the key %v: %w", t.name, t.keyOf(row), err)
		}
		if err := fn(row); err != nil {
			return err
		}
	}
	return rows.Err()
}

// readAll calls fn with each row of a table.
func readAll(ctx context.Context, q queryer, t *table, fn func(row []any) error) error {
	return readRows(ctx, q, t, fn, `SELECT `+t.sourceNames()+` FROM `+t.source())
}

func rowSize(row []any) (n int) {
	for _, v := range row {
		switch x := v.(type) {
		case string:
			n += len(x)
		case []byte:
			n += len(x)
		}
	}
	return n + 16*len(row)
}

// change is an entry of move_changes.
type change struct {
	seq   int64
	table string
	key   []any // as SQLite returns it
}

// readChanges returns the next entries of move_changes after the given one.
func readChanges(ctx context.Context, q queryer, after int64, limit int) ([]change, error) {
	return collect(ctx, q, func(r *sql.Rows) (c change, err error) {
		c.key = make([]any, keyMax)
		to := []any{&c.seq, &c.table}
		for i := range c.key {
			to = append(to, &c.key[i])
		}
		err = r.Scan(to...)
		return c, err
	}, fmt.Sprintf(`SELECT * FROM %s WHERE seq > $1 ORDER BY seq LIMIT %d`, changesTable, limit), after)
}

// dropChanges deletes the entries before the given one, in steps, so that the node can write meanwhile. The given entry
// stays, and the next round copies its row once more. SQLite numbers the entries of an empty table from 1 again, so a
// change that the node records between two steps could otherwise get a number that the next step deletes.
func dropChanges(ctx context.Context, d *db.DB, until int64) error {
	return d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, fmt.Sprintf(`DELETE FROM %s WHERE seq IN (SELECT seq FROM %s WHERE seq < $1 ORDER BY seq
			LIMIT %d)`, changesTable, changesTable, changesStep), until)
	})
}

// readKeys returns the rows that exist among those with the given keys.
func readKeys(ctx context.Context, q queryer, t *table, keys [][]any) (rows [][]any, err error) {
	text := `SELECT ` + t.sourceNames() + ` FROM ` + t.source() + ` WHERE ` + t.whereKey("t.")
	args := make([]any, len(t.key))
	for _, key := range keys {
		for i, v := range key {
			args[i] = toSQLite(v)
		}
		err := readRows(ctx, q, t, func(row []any) error {
			rows = append(rows, row)
			return nil
		}, text, args...)
		if err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// facts returns the facts about the installation that are copied. The last backup is of the old database only.
func facts(ctx context.Context, q queryer) ([][2]string, error) {
	return collect(ctx, q, func(r *sql.Rows) (f [2]string, err error) {
		err = r.Scan(&f[0], &f[1])
		return f, err
	}, fmt.Sprintf(`SELECT name, value FROM installation WHERE name NOT IN ('%s', '%s', '%s', '%s') ORDER BY name`,
		db.FactMovedTo, db.FactMoveID, db.FactPaused, db.FactLastBackup))
}
