package softdelete

import (
	"cmp"
	"context"
	"strings"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Mark marks a team's row as deleted. If the team has no such row, Mark returns the table's NotFound fault.
func Mark(ctx context.Context, tx *db.Tx, t Table, teamID, rowID string) error {
	if !id.Valid(rowID) {
		return t.NotFound()
	}
	n, err := tx.Exec(ctx, `UPDATE `+t.Name+` SET deleted_at = $3 WHERE id = $1 AND team_id = $2 AND deleted_at = 0`,
		db.ID(rowID), db.ID(teamID), tx.Now().UnixMicro())
	if err == nil && n == 0 {
		return t.NotFound()
	}
	return err
}

// markedRow identifies a row that is marked as deleted.
type markedRow struct{ id, teamID string }

// markedRows returns up to limit marked rows, across all teams.
func markedRows(ctx context.Context, r db.Reader, t Table, limit int) ([]markedRow, error) {
	rows, err := r.Query(ctx, `SELECT id, team_id FROM `+t.Name+` WHERE deleted_at <> 0 ORDER BY id LIMIT $1`, limit)
	return db.Collect(rows, err, func(r db.Row) (m markedRow, err error) {
		err = r.Scan((*db.ID)(&m.id), (*db.ID)(&m.teamID))
		return m, err
	})
}

// deleteChildren deletes, in index order, up to batchRows rows that refer to a given row. It compares the team in a
// form for which no index is used, because an index that begins with the team could have all of the team's rows.
func deleteChildren(ctx context.Context, tx *db.Tx, c Child, m markedRow) (int64, error) {
	order := c.Order
	if !tx.OneWriter() {
		order = cmp.Or(c.PostgresOrder, order)
	}
	last := strings.ReplaceAll(order, ",", " DESC,") + " DESC"
	return tx.Exec(ctx, `DELETE FROM `+c.Table+` WHERE `+c.Column+` = $1 AND COALESCE(team_id, team_id) = $3
		AND (`+order+`) <= (SELECT `+order+` FROM (SELECT `+order+` FROM `+c.Table+` WHERE `+c.Column+` = $1
		ORDER BY `+order+` LIMIT $2) x
		ORDER BY `+last+` LIMIT 1)`, db.ID(m.id), batchRows, db.ID(m.teamID))
}

func deleteRow(ctx context.Context, tx *db.Tx, t Table, m markedRow) {
	tx.Queue(ctx, `DELETE FROM `+t.Name+` WHERE id = $1 AND team_id = $2 AND deleted_at <> 0`, db.ID(m.id),
		db.ID(m.teamID))
}
