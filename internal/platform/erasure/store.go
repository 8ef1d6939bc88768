package erasure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
)

// Texts describes columns with texts that people wrote, such as names and reasons, in a table with the columns id and
// team_id. A package that owns such a table exports its Texts as an eraser.
type Texts struct {
	Kind      string // for the report
	Table     string
	Condition string // restricts the rows; may be empty
	Columns   []string
	// Keep means that an erasure counts the rows as [LeftAlways] and does not change them. Kind says why.
	Keep bool
}

// MayContain returns an SQL condition that selects the rows in which one of the columns may contain an address, given
// the number of the parameter with [Address.Pattern]. The condition also selects rows without the address, so callers
// check the result with [Address.In]. It selects all rows with percent-encoded or JSON-escaped characters.
func MayContain(parameter int, columns ...string) string {
	conditions := make([]string, 0, 3*len(columns))
	for _, c := range columns {
		conditions = append(conditions, fmt.Sprintf(`LOWER(%s) LIKE $%d ESCAPE '\'`, c, parameter),
			c+` LIKE '%\%%' ESCAPE '\'`, c+` LIKE '%\\u00%' ESCAPE '\'`)
	}
	return "(" + strings.Join(conditions, " OR ") + ")"
}

// Erase replaces an address in the texts of the teams in scope.
func (t Texts) Erase(ctx context.Context, d *db.DB, a Address, scope Scope) (found Report, err error) {
	for _, teamID := range scope.Teams {
		rows := t.Table + " WHERE team_id = $1"
		err := db.Walk(ctx, d.Reader, rows, "id", []any{db.ID(teamID)}, func(after, upTo db.ID) error {
			some, err := t.matching(ctx, d.Reader, a, teamID, after, upTo)
			if err != nil || len(some) == 0 {
				return err
			}
			if t.Keep {
				found.Leave(t.Kind, LeftAlways, len(some))
				return nil
			}
			if found.Add(t.Kind, len(some)); scope.DryRun {
				return nil
			}
			return d.Update(ctx, func(tx *db.Tx) error {
				for _, row := range some {
					t.replace(ctx, tx, a, teamID, row)
				}
				return nil
			})
		})
		if err != nil {
			return found, fmt.Errorf("erase an address in %s of team %s: %w", t.Table, teamID, err)
		}
	}
	return found, nil
}

// matching returns the rows that contain the address and have ids in a range. Each row is its id and its texts.
func (t Texts) matching(ctx context.Context, r db.Reader, a Address, teamID string, after,
	upTo db.ID) ([][]string, error) {
	text := `SELECT id, ` + strings.Join(t.Columns, ", ") + ` FROM ` + t.Table + ` WHERE team_id = $1 AND id > $2
		AND id <= $3 AND ` + MayContain(4, t.Columns...)
	if t.Condition != "" {
		text += ` AND ` + t.Condition
	}
	rows, err := r.Query(ctx, text+` ORDER BY id`, db.ID(teamID), after, upTo, a.Pattern())
	all, err := db.Collect(rows, err, func(r db.Row) ([]string, error) {
		row := make([]string, 1+len(t.Columns))
		to := []any{(*db.ID)(&row[0])}
		for i := range t.Columns {
			to = append(to, &row[1+i])
		}
		return row, r.Scan(to...)
	})
	return slices.DeleteFunc(all, func(row []string) bool { return !slices.ContainsFunc(row[1:], a.In) }), err
}

// replace updates a row, unless somebody has changed its texts since they were read.
func (t Texts) replace(ctx context.Context, tx *db.Tx, a Address, teamID string, row []string) {
	args := []any{db.ID(teamID), db.ID(row[0])}
	var set, same []string
	for i, c := range t.Columns {
		args = append(args, row[1+i], a.Replace(row[1+i]))
		same = append(same, fmt.Sprintf("%s = $%d", c, len(args)-1))
		set = append(set, fmt.Sprintf("%s = $%d", c, len(args)))
	}
	tx.Queue(ctx, `UPDATE `+t.Table+` SET `+strings.Join(set, ", ")+` WHERE team_id = $1 AND id = $2 AND `+
		strings.Join(same, " AND "), args...)
}
