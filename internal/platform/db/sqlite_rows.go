package db

import (
	"context"
	"strconv"
	"strings"
)

// insertRows is the maximum number of rows of a RowStatement that wait for their INSERT on SQLite.
const insertRows = 64

// One statement inserts 16 rows, 4 or 1, so that few statements must be prepared.
const manyRows, someRows = 16, 4

// together returns how many of the given number of rows the next statement inserts. Starting and ending a statement
// costs SQLite as much as inserting a small row.
func together(rows int) int {
	switch {
	case rows >= manyRows:
		return manyRows
	case rows >= someRows:
		return someRows
	}
	return 1
}

// insertOf returns SQLite's INSERT statement for n rows. The parameter values is a row's list of values, with the
// parameters $1, $2 and so on.
//
// By default, SQLite copies each page that a statement with several rows changes, so that it can undo the first rows if
// a later one is refused. OR FAIL saves these copies. The transaction undoes the rows of a statement that failed.
func insertOf(n int, into, values string, parameters int) string {
	if n == 1 {
		return `INSERT INTO ` + into + ` VALUES (` + values + `)`
	}
	all := make([]string, n)
	for row := range all {
		all[row] = "(" + parameter.ReplaceAllStringFunc(values, func(name string) string {
			i, _ := strconv.Atoi(name[1:])
			return "$" + strconv.Itoa(row*parameters+i)
		}) + ")"
	}
	return `INSERT OR FAIL INTO ` + into + ` VALUES ` + strings.Join(all, ", ")
}

// addRow adds a row to those that are inserted together.
func (t *sqliteTx) addRow(ctx context.Context, s *RowStatement, args []any) {
	if t.err != nil {
		return
	}
	list := t.rowsOf(s)
	if !list.add(args) {
		t.flush(ctx)
		list = t.rowsOf(s)
		list.add(args)
	}
	if len(list.rows) == insertRows {
		t.flush(ctx)
	}
}

// rowsOf returns the list of a statement's rows that wait.
func (t *sqliteTx) rowsOf(s *RowStatement) *rowList {
	for _, l := range t.rows {
		if l.of == s {
			return l
		}
	}
	list := &rowList{of: s}
	t.rows = append(t.rows, list)
	return list
}

// flush inserts the rows that wait. All other statements call it first, so that statements see the rows that were
// queued before them.
func (t *sqliteTx) flush(ctx context.Context) {
	if len(t.rows) == 0 {
		return
	}
	all := t.rows
	t.rows = nil
	for _, l := range all {
		for rows := l.rows; len(rows) > 0 && t.err == nil; {
			n := together(len(rows))
			args := rows[0]
			if n > 1 {
				args = make([]any, 0, n*len(args))
				for _, row := range rows[:n] {
					args = append(args, row...)
				}
			}
			t.queue(ctx, l.of.several[n], args)
			rows = rows[n:]
		}
	}
}
