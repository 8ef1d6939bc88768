package dbtest

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// weak lists columns in which many rows have the same value. A query with conditions on only these columns reads all
// rows for a team, a job kind, a webhook endpoint or a broadcast.
var weak = []string{"team_id", "kind", "lane", "webhook_id", "status", "holder", "parked", "broadcast_id"}

// repeated lists columns of email_events that have the same value in many events. One recipient can cause any number of
// events with equal values by following a link repeatedly.
var repeated = []string{"email_id", "type", "recipient", "detail"}

// Allowed describes statements that may read an unlimited number of rows.
type Allowed struct {
	Text   string // part of the statement's text, with single spaces
	Reason string
	Only   string // the engine that needs the exception, or empty for both engines
	Seldom bool   // whether only some runs of the test execute such a statement
}

// CheckPlans reports a test error for each traced statement whose run time grows with the number of rows, unless the
// statement is allowed. The run time grows if a statement reads a whole table or index, or all rows with the same value
// in a weak column. A LIMIT that ends the read early is sufficient. CheckPlans also rejects a subquery that, for each
// event of an email, reads all events with the same values in the repeated columns.
func (tr *Trace) CheckPlans(t *testing.T, allowed []Allowed) {
	t.Helper()
	asked := map[string]db.Statement{}
	for _, s := range tr.TakeAll() {
		text := strings.Join(strings.Fields(s.SQL), " ")
		if word, _, _ := strings.Cut(text, " "); slices.Contains([]string{"SELECT", "UPDATE", "DELETE", "INSERT", "WITH"},
			word) {
			asked[text] = s
		}
	}
	tables := tr.tables(t)
	if tr.d.Engine() == "postgres" {
		tr.crowd(t, tables)
		for partition, parent := range tr.partitions(t) {
			tables[partition] = tables[parent]
		}
	}
	used := make([]bool, len(allowed))
	for text, s := range asked {
		i := slices.IndexFunc(allowed, func(a Allowed) bool { return strings.Contains(text, a.Text) })
		if i >= 0 {
			used[i] = true
			continue
		}
		reads := tr.longReads(t, s, tables)
		if len(reads) == 0 {
			continue
		}
		plan := ""
		if tr.d.Engine() == "postgres" {
			plan = tr.generic(t, "EXPLAIN ", s)
		} else {
			plan = tr.Plan(t, s)
		}
		t.Errorf("%s\nreads ever more, by %s:\n%s", text, strings.Join(reads, "; "), plan)
	}
	for i, a := range allowed {
		if !used[i] && !a.Seldom && (a.Only == "" || a.Only == tr.d.Engine()) {
			t.Errorf("no statement has %q, which is allowed because %s", a.Text, a.Reason)
		}
	}
	if len(asked) < 150 {
		t.Errorf("%d statements were traced, and there are more", len(asked))
	}
}

// longReads returns the steps of a statement's plan whose run time grows with the number of rows.
func (tr *Trace) longReads(t *testing.T, s db.Statement, tables map[string][][2]string) []string {
	if tr.d.Engine() == "postgres" {
		return tr.longReadsPostgres(t, s, tables)
	}
	return tr.longReadsSQLite(t, s, tables)
}

var (
	sqliteStep = regexp.MustCompile(`^(SCAN|SEARCH) (\w+)(?: .*?\((.*)\))?`)
	// A sort of a subquery that has a limit is bounded. Such subqueries are called x.
	limitedX = regexp.MustCompile(`LIMIT \$\d+\) x\b`)
	sortsX   = regexp.MustCompile(`(?m)^ *SCAN x\n *USE TEMP B-TREE FOR ORDER BY$`)
	compared = regexp.MustCompile(`(\w+)(?:\)(?:::\w+)?)? ?(=|<>|<=|>=|<|>)`)
)

func (tr *Trace) longReadsSQLite(t *testing.T, s db.Statement, tables map[string][][2]string) (long []string) {
	plan := tr.Plan(t, s)
	sorted := plan
	if limitedX.MatchString(s.SQL) {
		sorted = sortsX.ReplaceAllString(plan, "")
	}
	bounded := strings.Contains(s.SQL, "LIMIT") && !strings.Contains(sorted, "TEMP B-TREE FOR ORDER BY")
	lowest := regexp.MustCompile(`\b(MIN|MAX)\(`).MatchString(s.SQL) && !strings.Contains(s.SQL, "GROUP BY")
	within := -1 // indentation of the subquery that runs once per row
	for line := range strings.Lines(plan) {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		line = strings.TrimSpace(line)
		if indent <= within {
			within = -1
		}
		if within < 0 && strings.HasPrefix(line, "CORRELATED") {
			within = indent
		}
		m := sqliteStep.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		table := tableOf(s.SQL, m[2], tables)
		if within >= 0 && table == "email_events" && !narrow(m[3], repeated...) && ofEvents(s.SQL, m[2]+".", s.SQL, tables) {
			long = append(long, line+" for each event")
			continue
		}
		if tables[table] == nil || bounded {
			continue
		}
		if !narrow(m[3]) && !(lowest && m[1] == "SEARCH") {
			long = append(long, line)
		}
	}
	return long
}

// tableOf returns the table that a name in an SQLite query plan refers to. The name may be an alias.
func tableOf(text, name string, tables map[string][][2]string) string {
	if tables[name] != nil {
		return name
	}
	for table := range tables {
		if regexp.MustCompile(`\b` + table + `\s+(AS\s+)?` + name + `\b`).MatchString(text) {
			return table
		}
	}
	return ""
}

// ofEvents reports whether a condition of a subquery compares email_id with the email_id of an event outside of the
// subquery. The prefix parameter is the subquery's alias for its table followed by a dot, or "".
func ofEvents(condition, prefix, text string, tables map[string][][2]string) bool {
	m := regexp.MustCompile(`\b` + regexp.QuoteMeta(prefix) + `email_id = (\w+)\.`).FindStringSubmatch(condition)
	return m != nil && tableOf(text, m[1], tables) == "email_events"
}

// narrow reports whether an index condition contains a range, or a column in which few rows share a value. Callers pass
// additional columns in which many rows share a value.
func narrow(condition string, also ...string) bool {
	for _, m := range compared.FindAllStringSubmatch(condition, -1) {
		if m[2] != "=" || !slices.Contains(weak, m[1]) && !slices.Contains(also, m[1]) {
			return true
		}
	}
	return false
}

type pgPlan struct {
	Type  string   `json:"Node Type"`
	Table string   `json:"Relation Name"`
	Cond  string   `json:"Index Cond"`
	Of    string   `json:"Parent Relationship"`
	Plans []pgPlan `json:"Plans"`
}

func (tr *Trace) longReadsPostgres(t *testing.T, s db.Statement, tables map[string][][2]string) (long []string) {
	var all []struct{ Plan pgPlan }
	if err := json.Unmarshal([]byte(tr.generic(t, "EXPLAIN (FORMAT JSON) ", s)), &all); err != nil || len(all) != 1 {
		t.Fatalf("the plan of %s: %v", s.SQL, err)
	}
	var walk func(p pgPlan, bounded, each bool)
	walk = func(p pgPlan, bounded, each bool) {
		each = each || p.Of == "SubPlan"
		switch {
		case p.Type == "Limit":
			bounded = true
		case strings.Contains(p.Type, "Sort") || p.Type == "Aggregate" || p.Type == "Hash":
			bounded = false // a sort, aggregate or hash reads all its input before it returns its first row
		case each && strings.HasPrefix(p.Table, "email_events") && !narrow(p.Cond, repeated...) &&
			ofEvents(p.Cond, "", s.SQL, tables):
			long = append(long, fmt.Sprintf("%s of %s for each event, %s", p.Type, p.Table, p.Cond))
		case p.Type == "Tid Scan": // reads single rows
		case tables[p.Table] != nil && strings.Contains(p.Type, "Scan") && !bounded && !narrow(p.Cond):
			long = append(long, fmt.Sprintf("%s of %s, %s", p.Type, p.Table, p.Cond))
		}
		for _, below := range p.Plans {
			walk(below, bounded, each)
		}
	}
	walk(all[0].Plan, false, false)
	return long
}

// generic returns PostgreSQL's generic plan for a statement, which is independent of the arguments.
func (tr *Trace) generic(t *testing.T, explain string, s db.Statement) string {
	t.Helper()
	args := ""
	if len(s.Args) > 0 {
		args = "(NULL" + strings.Repeat(", NULL", len(s.Args)-1) + ")"
	}
	var b strings.Builder
	err := tr.d.Update(t.Context(), func(tx *db.Tx) error {
		b.Reset()
		for _, text := range []string{`SET LOCAL enable_seqscan = off`, `SET LOCAL enable_bitmapscan = off`,
			`SET LOCAL enable_partition_pruning = off`, // arguments that are NULL would exclude all partitions
			`SET LOCAL plan_cache_mode = force_generic_plan`, `PREPARE asked AS ` + s.SQL} {
			if _, err := tx.Exec(t.Context(), text); err != nil {
				return err
			}
		}
		if err := tr.explain(t.Context(), tx, &b, explain, db.Statement{SQL: "EXECUTE asked" + args}); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `DEALLOCATE asked`)
		return err
	})
	if err != nil {
		t.Fatalf("explain %s: %v", s.SQL, err)
	}
	return b.String()
}

// tables returns the tables in the schema with their columns and types, except tables that stay small or have one row
// per team.
func (tr *Trace) tables(t *testing.T) map[string][][2]string {
	t.Helper()
	query := `SELECT m.name, c.name, LOWER(c.type) FROM sqlite_master m, pragma_table_info(m.name) c
		WHERE m.type = 'table'`
	if tr.d.Engine() == "postgres" {
		query = `SELECT table_name, column_name, data_type FROM information_schema.columns
			WHERE table_schema = current_schema() AND is_generated = 'NEVER'
			AND table_name NOT IN (SELECT viewname FROM pg_views WHERE schemaname = current_schema())
			AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)`
	}
	all := map[string][][2]string{}
	rows, err := tr.d.Query(t.Context(), query)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var table, column, kind string
		err = r.Scan(&table, &column, &kind)
		all[table] = append(all[table], [2]string{column, kind})
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, small := range []string{"migrations", "nodes", "hints", "live_tails", "email_counts_until",
		"email_bodies_until"} {
		delete(all, small)
	}
	return all
}

// partitions returns the parents of the partitions that have many rows. PostgreSQL may read all of the others.
func (tr *Trace) partitions(t *testing.T) map[string]string {
	t.Helper()
	parents := map[string]string{}
	rows, err := tr.d.Query(t.Context(), `SELECT CAST(c.relname AS TEXT), CAST(p.relname AS TEXT) FROM pg_inherits i
		JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_class p ON p.oid = i.inhparent WHERE p.relkind = 'p'
		AND c.reltuples > 1000`)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var partition, parent string
		err = r.Scan(&partition, &parent)
		parents[partition] = parent
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return parents
}

// crowd fills the tables with many rows for many teams, and makes PostgreSQL analyze them.
func (tr *Trace) crowd(t *testing.T, tables map[string][][2]string) {
	t.Helper()
	const rows = 4000
	few := map[string]int{"team_id": 20, "webhook_id": 100, "kind": 10, "lane": 200, "type": 10}
	states := `(ARRAY['pending', 'failed', 'success', 'verified'])[1 + g % 4]`
	for table, columns := range tables { // one transaction per table, because each answer has a time limit
		var names, values []string
		for _, c := range columns {
			name, value := c[0], "g"
			switch {
			case few[name] > 0 && c[1] == "text":
				value = fmt.Sprintf("'%s ' || g %% %d", name, few[name])
			case name == "status" && c[1] == "text":
				value = states
			case name == "holder":
				value = "NULL"
				if c[1] == "text" {
					value = "''"
				}
			case c[1] == "uuid":
				if name == "broadcast_id" { // many rows have the same broadcast, which has many recipients
					value = "g % 20"
				} else if few[name] > 0 {
					value = fmt.Sprintf("g %% %d", few[name])
				}
				value = "CAST(LPAD(TO_HEX(1 + " + value + "), 32, '0') AS UUID)"
			case name == "broadcast_id": // many rows have the same broadcast, which has many recipients
				value = "'id ' || g % 20"
			case strings.HasSuffix(name, "_id") && c[1] == "text": // the column refers to an existing row
				value = "'id ' || g"
			case c[1] == "bytea":
				value = "CONVERT_TO('octets ' || g, 'UTF8')"
			case c[1] == "text":
				value = fmt.Sprintf("'%s ' || g", name)
			case c[1] == "boolean":
				value = "g % 10 = 0"
			}
			names, values = append(names, name), append(values, value)
		}
		err := tr.d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `SET LOCAL session_replication_role = replica`) // no foreign keys
			tx.Queue(t.Context(), fmt.Sprintf(
				`INSERT INTO %s (%s) SELECT %s FROM GENERATE_SERIES(1, %d) g ON CONFLICT DO NOTHING`,
				table, strings.Join(names, ", "), strings.Join(values, ", "), rows))
			tx.Queue(t.Context(), `ANALYZE `+table)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
