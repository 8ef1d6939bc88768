package db

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// InsertRows inserts many rows and returns how many it inserted or updated. The into parameter lists the table and its
// columns, such as `things (id, name)`; conflict is an ON CONFLICT clause or "". Each argument is the content of one
// column. It is either a list with one value for each row ([]string, []ID, []int64, []float64, []bool or [][]byte), or
// a single value for all rows. At least one argument must be a list, and all lists must have the same length.
//
// On PostgreSQL, InsertRows runs one statement with the lists, which is much faster than many statements. On
// PostgreSQL, an ON CONFLICT DO UPDATE clause cannot update the same row twice in one call to InsertRows. On SQLite,
// InsertRows runs one statement per row, so that values need no JSON encoding. Statements with several rows, as those of
// a RowStatement, made an import of contacts no faster and took more memory.
func (t *Tx) InsertRows(ctx context.Context, into, conflict string, columns ...any) (int64, error) {
	if !t.oneWriter {
		return t.Exec(ctx, insertLists(into, conflict, columns), columns...)
	}
	var all int64
	err := eachRow(into, conflict, columns, func(text string, args []any) error {
		n, err := t.Exec(ctx, text, args...)
		all += n
		return err
	})
	return all, err
}

// QueueRows is like InsertRows but queues the statement and does not return the number of rows.
func (t *Tx) QueueRows(ctx context.Context, into, conflict string, columns ...any) {
	if !t.oneWriter {
		t.Queue(ctx, insertLists(into, conflict, columns), columns...)
		return
	}
	eachRow(into, conflict, columns, func(text string, args []any) error {
		t.Queue(ctx, text, args...)
		return nil
	})
}

// insertLists returns the INSERT statement for PostgreSQL.
func insertLists(into, conflict string, columns []any) string {
	var selected, unnested, names []string
	for i, c := range columns {
		n := strconv.Itoa(i + 1)
		kind, list := pgType(c)
		if list {
			unnested = append(unnested, "CAST($"+n+" AS "+kind+"[])")
			names = append(names, "c"+n)
			selected = append(selected, "c"+n)
		} else {
			selected = append(selected, "CAST($"+n+" AS "+kind+")")
		}
	}
	return "INSERT INTO " + into + " SELECT " + strings.Join(selected, ", ") + " FROM UNNEST(" +
		strings.Join(unnested, ", ") + ") AS u (" + strings.Join(names, ", ") + ") " + conflict
}

// pgType returns the PostgreSQL type of a column's values, and reports whether column is a list with one value per row.
func pgType(column any) (name string, list bool) {
	switch column.(type) {
	case string:
		return "TEXT", false
	case []string:
		return "TEXT", true
	case ID:
		return "UUID", false
	case []ID:
		return "UUID", true
	case int64:
		return "BIGINT", false
	case []int64:
		return "BIGINT", true
	case float64:
		return "DOUBLE PRECISION", false
	case []float64:
		return "DOUBLE PRECISION", true
	case [][]byte:
		return "BYTEA", true
	case bool:
		return "BOOLEAN", false
	case []bool:
		return "BOOLEAN", true
	}
	panic(fmt.Sprintf("db: rows have no columns of the type %T", column))
}

// eachRow calls the do function once per row, with the INSERT statement for one row and the row's arguments.
func eachRow(into, conflict string, columns []any, do func(text string, args []any) error) error {
	places := make([]string, len(columns))
	rows := -1
	at := make([]func(row int) any, len(columns))
	for i, c := range columns {
		places[i] = "$" + strconv.Itoa(i+1)
		n := -1
		switch list := c.(type) {
		case []string:
			n, at[i] = len(list), func(row int) any { return list[row] }
		case []ID:
			n, at[i] = len(list), func(row int) any { return list[row] }
		case []int64:
			n, at[i] = len(list), func(row int) any { return list[row] }
		case []float64:
			n, at[i] = len(list), func(row int) any { return list[row] }
		case [][]byte:
			n, at[i] = len(list), func(row int) any { return list[row] }
		case []bool:
			n, at[i] = len(list), func(row int) any { return list[row] }
		default:
			pgType(c) // SQLite must reject the same types as PostgreSQL
			at[i] = func(int) any { return c }
		}
		if n >= 0 && rows >= 0 && n != rows {
			return fmt.Errorf("insert into %s: lists of %d and of %d rows", into, rows, n)
		}
		rows = max(rows, n)
	}
	text := "INSERT INTO " + into + " VALUES (" + strings.Join(places, ", ") + ") " + conflict
	args := make([]any, len(columns))
	for row := range rows {
		for i := range columns {
			args[i] = at[i](row)
		}
		if err := do(text, args); err != nil {
			return err
		}
	}
	return nil
}
