package db

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgtype"
)

// RowStatement is a statement that changes one row and that transactions run for many rows, such as the INSERT of an
// email. On PostgreSQL, all rows that a transaction queues are sent as one statement with lists, because planning,
// starting and ending a statement costs as much as changing a row. On SQLite, the rows of an INSERT share statements of
// 16 and of 4 rows, and other statements run once per row.
type RowStatement struct {
	one     string               // the statement for one row, whose values are $1, $2 and so on
	several [manyRows + 1]string // SQLite: the INSERT of so many rows, for each result of together
	list    string               // PostgreSQL: the same for many rows, whose values are lists
	table   string               // the table whose rows the statement changes, not one of its partitions
	inserts bool                 // whether the statement is an INSERT
	inParts sync.Map             // statements for partitions, by the partition's name
}

// NewRowStatement returns a statement that updates or deletes a row. The parameter one is the statement for one row.
// The parameter list is PostgreSQL's statement for many rows. Each of its parameters is a list with the values that the
// parameter of the same number has in the statement for one row; the statement gives their types by CAST. The first
// value identifies the row. Rows with the same first value are changed one after another.
func NewRowStatement(one, list string) *RowStatement {
	return &RowStatement{one: one, list: list, table: changedTable.FindStringSubmatch(one)[1]}
}

// changedTable matches the beginning of an UPDATE or a DELETE.
var changedTable = regexp.MustCompile(`^(?:UPDATE|DELETE FROM) (\w+)`)

var parameter = regexp.MustCompile(`\$(\d+)`)

// InsertStatement returns an INSERT statement for one row. The parameter into lists the table and its columns, such as
// `things (id, name, parts)`; values lists their values, such as `$1, $2, 0`; types lists PostgreSQL's types of $1, $2
// and so on, separated by spaces.
func InsertStatement(into, values, types string) *RowStatement {
	var lists, names []string
	for i, kind := range strings.Fields(types) {
		n := strconv.Itoa(i + 1)
		lists, names = append(lists, "CAST($"+n+" AS "+kind+"[])"), append(names, "c"+n)
	}
	table, _, _ := strings.Cut(into, " ")
	s := &RowStatement{
		inserts: true,
		table:   table,
		one:     insertOf(1, into, values, len(names)),
		list: `INSERT INTO ` + into + ` SELECT ` + parameter.ReplaceAllString(values, "c$1") + ` FROM UNNEST(` +
			strings.Join(lists, ", ") + `) AS u (` + strings.Join(names, ", ") + `)`,
	}
	for _, n := range []int{1, someRows, manyRows} {
		s.several[n] = insertOf(n, into, values, len(names))
	}
	return s
}

// QueueRow is like Queue, but on PostgreSQL, rows with the same RowStatement may share one statement, which runs when
// the first of these rows was queued. A row may therefore be changed before statements that were queued earlier, so its
// change must not depend on them. The only exception is an INSERT of the row by QueueRow, which always runs before the
// change.
func (t *Tx) QueueRow(ctx context.Context, s *RowStatement, args ...any) {
	t.changes++
	t.w.queueRow(ctx, nil, s, args)
}

// QueueOneRow is like QueueRow for an UPDATE or a DELETE that must change a row, as with QueueOne. If a statement with
// several rows misses a row, the transaction fails with the error of the first of them.
func (t *Tx) QueueOneRow(ctx context.Context, missing error, s *RowStatement, args ...any) {
	t.changes++
	t.w.queueRow(ctx, missing, s, args)
}

// QueueRowIn is like QueueRow for an UPDATE of a partitioned table. The first argument is the id by which the table is
// divided, and the statement begins with `UPDATE table `.
func (t *Tx) QueueRowIn(ctx context.Context, table string, s *RowStatement, args ...any) {
	if t.parts != nil {
		if name := t.parts.of(table, args[0].(ID)); name != table {
			s, t.inPart = s.inPart(table, name), true
		}
	}
	t.QueueRow(ctx, s, args...)
}

const (
	listMax      = 100     // maximum number of rows in a list
	listMaxBytes = 1 << 20 // maximum size of the texts in a list, unless a single row is larger
)

// rowList collects the rows of a RowStatement.
type rowList struct {
	of   *RowStatement
	rows [][]any
	size int // bytes in texts
}

// add adds a row, or returns false if the row must be part of another list.
func (l *rowList) add(args []any) bool {
	size := 0
	for _, a := range args {
		switch a := a.(type) {
		case string:
			size += len(a)
		case []byte:
			size += len(a)
		}
	}
	if len(l.rows) > 0 && (len(l.rows) == listMax || l.size+size > listMaxBytes) {
		return false
	}
	if !l.of.inserts { // an UPDATE or a DELETE that joins a list changes each row once
		for _, row := range l.rows {
			if row[0] == args[0] {
				return false
			}
		}
	}
	l.rows, l.size = append(l.rows, args), l.size+size
	return true
}

// statement returns the statement for the rows and its arguments. A single row needs no lists.
func (l *rowList) statement() (text string, args []any) {
	if len(l.rows) == 1 {
		return l.of.one, l.rows[0]
	}
	return l.of.list, columns(l.rows)
}

// columns returns the arguments of a statement with lists.
func columns(rows [][]any) []any {
	args := make([]any, len(rows[0]))
	for i := range args {
		args[i] = listColumn{rows, i}
	}
	return args
}

// listColumn is the list of one value of each row. It implements pgtype.ArrayGetter, so that the values of a row, of
// which some may be nil, need not be copied to lists of their types.
type listColumn struct {
	rows [][]any
	i    int
}

func (c listColumn) Dimensions() []pgtype.ArrayDimension {
	return []pgtype.ArrayDimension{{Length: int32(len(c.rows)), LowerBound: 1}}
}

func (c listColumn) Index(row int) any { return c.rows[row][c.i] }

// IndexType returns nil: each value is encoded by its own type.
func (c listColumn) IndexType() any { return nil }
