package promote

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// left are the tables that are not copied: what concerns only the nodes of one database, and the tables of the move.
// The facts in the table installation are copied by name.
var left = []string{"migrations", "installation", "nodes", "quotas", "hints", changesTable, stateTable, constraintsTable}

// table is a table that is copied.
type table struct {
	name    string
	columns []column // sorted by name
	key     []int    // indexes of the columns of the primary key, in its order
	joined  *join    // nil unless SQLite keeps some columns in another table
}

// column is a column with its type on PostgreSQL.
type column struct{ name, kind string }

// join is a table of SQLite whose rows belong to those of another table. PostgreSQL has its columns in that table, and
// NULL in all of them for a row that has none.
type join struct {
	name    string
	columns []string // sorted
	key     []string // columns with the key of the other table, in its order
}

// joins are the joined tables by the table to whose rows theirs belong.
var joins = map[string]*join{"emails": {"email_bodies", []string{"body_text", "headers", "html", "parts"},
	[]string{"team_id", "email_id"}}}

func (t *table) names() []string {
	var all []string
	for _, c := range t.columns {
		all = append(all, c.name)
	}
	return all
}

func (t *table) keyNames() []string {
	var all []string
	for _, i := range t.key {
		all = append(all, t.columns[i].name)
	}
	return all
}

// keyOf returns the primary key of a row.
func (t *table) keyOf(row []any) []any {
	key := make([]any, len(t.key))
	for i, at := range t.key {
		key[i] = row[at]
	}
	return key
}

// source returns the tables from which SQLite reads the rows.
func (t *table) source() string {
	if t.joined == nil {
		return t.name + " t"
	}
	var on []string
	for i, name := range t.keyNames() {
		on = append(on, fmt.Sprintf("j.%s = t.%s", t.joined.key[i], name))
	}
	return t.name + " t LEFT JOIN " + t.joined.name + " j ON " + strings.Join(on, " AND ")
}

// sourceNames returns the names of the columns for source.
func (t *table) sourceNames() string {
	var all []string
	for _, name := range t.names() {
		of := "t."
		if t.joined != nil && slices.Contains(t.joined.columns, name) {
			of = "j."
		}
		all = append(all, of+quoted(name))
	}
	return strings.Join(all, ", ")
}

// whereKey returns the condition that selects a row by its key. The prefix stands before the names of columns.
func (t *table) whereKey(prefix string) string {
	var where []string
	for i, name := range t.keyNames() {
		where = append(where, fmt.Sprintf("%s%s = $%d", prefix, quoted(name), i+1))
	}
	return strings.Join(where, " AND ")
}

// list returns names with quotation marks, separated by commas. Some names are keywords.
func list(prefix string, names []string) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = prefix + quoted(name)
	}
	return strings.Join(all, ", ")
}

func quoted(name string) string { return `"` + name + `"` }

// findTables returns the tables that both databases have, and an error unless they have the same tables and columns.
func findTables(ctx context.Context, source queryer, to *target) ([]*table, error) {
	all, err := to.tables(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the tables of PostgreSQL: %w", err)
	}
	of, err := sourceColumns(ctx, source)
	if err != nil {
		return nil, fmt.Errorf("read the tables of SQLite: %w", err)
	}
	const cannot = "so this program cannot move the installation"
	for _, t := range all {
		columns, ok := of[t.name]
		if !ok {
			return nil, fmt.Errorf("SQLite has no table %s, %s", t.name, cannot)
		}
		if t.joined = joins[t.name]; t.joined != nil {
			own := slices.DeleteFunc(slices.Clone(of[t.joined.name]), func(name string) bool {
				return slices.Contains(t.joined.key, name)
			})
			if !slices.Equal(own, t.joined.columns) {
				return nil, fmt.Errorf("the table %s has the columns %v on SQLite, %s", t.joined.name, own, cannot)
			}
			columns = slices.Sorted(slices.Values(slices.Concat(columns, own)))
			delete(of, t.joined.name)
		}
		if !slices.Equal(columns, t.names()) {
			return nil, fmt.Errorf("the table %s has the columns %v on SQLite and %v on PostgreSQL, %s", t.name, columns,
				t.names(), cannot)
		}
		if len(t.key) == 0 || len(t.key) > keyMax {
			return nil, fmt.Errorf("the table %s has a key of %d columns, %s", t.name, len(t.key), cannot)
		}
		delete(of, t.name)
	}
	for name := range of {
		return nil, fmt.Errorf("PostgreSQL has no table %s, %s", name, cannot)
	}
	return all, nil
}
