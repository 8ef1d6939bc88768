package dbtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
)

// CheckTeams reports a test error for each traced statement that reads or changes rows of teams without a condition on
// their team, unless the statement is allowed. CheckTeams must be called before CheckPlans.
func (tr *Trace) CheckTeams(t *testing.T, allowed []Allowed) {
	t.Helper()
	tables := tr.teamTables(t)
	tr.mu.Lock()
	statements := slices.Clone(tr.st)
	tr.mu.Unlock()
	asked := map[string]bool{}
	for _, s := range statements {
		asked[strings.Join(strings.Fields(s.SQL), " ")] = true
		if s.List != nil && tr.d.Engine() == "postgres" {
			asked[strings.Join(strings.Fields(s.List.SQL), " ")] = true
		}
	}
	used := make([]bool, len(allowed))
	for text := range asked {
		without := withoutTeam(text, tables)
		if len(without) == 0 {
			continue
		}
		if i := slices.IndexFunc(allowed, func(a Allowed) bool { return strings.Contains(text, a.Text) }); i >= 0 {
			used[i] = true
			continue
		}
		t.Errorf("%s\nnames no team of %s", text, strings.Join(without, " and "))
	}
	for i, a := range allowed {
		if !used[i] && !a.Seldom && (a.Only == "" || a.Only == tr.d.Engine()) {
			t.Errorf("no statement without a team has %q, which is allowed because %s", a.Text, a.Reason)
		}
	}
}

// teamTables returns the tables, partitions and views that have a column team_id.
func (tr *Trace) teamTables(t *testing.T) map[string]bool {
	t.Helper()
	query := `SELECT m.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE c.name = 'team_id'`
	if tr.d.Engine() == "postgres" {
		query = `SELECT CAST(table_name AS TEXT) FROM information_schema.columns WHERE table_schema = current_schema()
			AND column_name = 'team_id'`
	}
	tables := map[string]bool{}
	rows, err := tr.d.Query(t.Context(), query)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var name string
		err = r.Scan(&name)
		tables[name] = true
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return tables
}

var (
	listedTable = regexp.MustCompile(`(?i)(?:\b(?:FROM|JOIN|UPDATE|INTO|USING)\s+|,\s*)([a-z_0-9]+)`)
	insertsTeam = regexp.MustCompile(`(?i)^INSERT (?:OR FAIL )?INTO [a-z_0-9]+(?: AS \w+)? \([^)]*\bteam_id\b`)
	// comparesTeam matches a comparison of a team, alone or with other columns.
	comparesTeam = regexp.MustCompile(`(?i)\bteam_id\s*(?:=|<|>|IN\b|IS\b)` +
		`|(?:=|<|>)\s*(?:ANY|ALL)?\(?(?:\w+\.)?team_id\b` +
		`|\((?:[^()]*[, .])?team_id\b[^()]*\)\s*(?:=|<|>|IN\b)`)
)

// withoutTeam returns the tables of teams that a statement uses, or nil if it has a condition on a team. One condition
// is enough: a join finds the rows of other tables by the ids that rows of the team contain.
func withoutTeam(text string, tables map[string]bool) (without []string) {
	if insertsTeam.MatchString(text) || comparesTeam.MatchString(text) {
		return nil
	}
	for _, m := range listedTable.FindAllStringSubmatch(text, -1) {
		if table := m[1]; tables[table] && !slices.Contains(without, table) {
			without = append(without, table)
		}
	}
	return without
}
