package db

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// RowQuery is a SELECT of at most one row that many goroutines run, such as the statement that loads an email. On
// PostgreSQL, calls of [DB.ReadRow] that wait at the same time share one statement, because a round trip and the start
// and end of a statement cost more than finding a row.
type RowQuery struct {
	one     string   // the statement for one row, whose arguments are $1, $2 and so on
	list    string   // PostgreSQL: the same for many rows, whose arguments are lists; its first column counts them from 1
	table   string   // the partitioned table that the statement reads, or ""
	inParts sync.Map // statements for partitions, by the partition's name
}

// NewRowQuery returns a SELECT without LIMIT. If table is not "", it is a partitioned table, which the text names as
// `FROM table `. The parameter types lists PostgreSQL's types of $1, $2 and so on, separated by spaces. If types is "",
// reads never share a statement, for example because an argument is a list.
func NewRowQuery(table, text, types string) *RowQuery {
	if types == "" {
		return &RowQuery{table: table, one: text}
	}
	var lists, names []string
	for i, kind := range strings.Fields(types) {
		n := strconv.Itoa(i + 1)
		lists, names = append(lists, "CAST($"+n+" AS "+kind+"[])"), append(names, "c"+n)
	}
	// LATERAL and LIMIT keep PostgreSQL from reading whole tables to join them with the list, which can look cheap while
	// the tables are small.
	return &RowQuery{table: table, one: text, list: plannedOnce(`SELECT u.n, r.* FROM UNNEST(` +
		strings.Join(lists, ", ") + `) WITH ORDINALITY AS u (` + strings.Join(names, ", ") + `, n) CROSS JOIN LATERAL (` +
		parameter.ReplaceAllString(text, "u.c$1") + ` LIMIT 1) AS r`)}
}

var listParameter = regexp.MustCompile(`CAST\(\$\d+ AS \w+\[\]\)`)

// plannedOnce hides the lengths of lists from PostgreSQL's planner. Otherwise a plan for the lists at hand would look
// cheaper than a plan for all lists, and the statement would be planned each time it is run.
func plannedOnce(text string) string { return listParameter.ReplaceAllString(text, "(SELECT $0)") }

// In returns the statement for a partition, or for the table; see [DB.PartitionOf].
func (q *RowQuery) In(name string) *RowQuery {
	if name == q.table {
		return q
	}
	if known, ok := q.inParts.Load(name); ok {
		return known.(*RowQuery)
	}
	named := func(text string) string { return strings.Replace(text, "FROM "+q.table+" ", "FROM "+name+" ", 1) }
	known, _ := q.inParts.LoadOrStore(name, &RowQuery{table: name, one: named(q.one), list: named(q.list)})
	return known.(*RowQuery)
}

// ReadRow runs a RowQuery when Scan is called, which waits for other goroutines' reads that share its statement. Scan
// returns [ErrNoRows] if no row has these arguments; the destinations may be set even if it returns an error. ReadRow
// is for small rows: a large one delays the other reads.
func (d *DB) ReadRow(ctx context.Context, q *RowQuery, args ...any) Row {
	return rowRead{ctx, d, q, args}
}

// ReadLargeRow is like ReadRow, but the row has a statement of its own.
func (d *DB) ReadLargeRow(ctx context.Context, q *RowQuery, args ...any) Row {
	return d.QueryRow(ctx, q.one, args...)
}

type rowRead struct {
	ctx  context.Context
	d    *DB
	q    *RowQuery
	args []any
}

func (r rowRead) Scan(dest ...any) error { return r.d.e.readRow(r.ctx, r.q, dest, r.args) }
