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

// markedRows returns the ids of up to limit marked rows, across all teams.
func markedRows(ctx context.Context, r db.Reader, t Table, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM `+t.Name+` WHERE deleted_at <> 0 ORDER BY id LIMIT $1`, limit)
	return db.Collect(rows, err, func(r db.Row) (rowID string, err error) {
		err = r.Scan((*db.ID)(&rowID))
		return rowID, err
	})
}

// deleteChildren deletes, in index order, up to batchRows rows that refer to a given row.
func deleteChildren(ctx context.Context, tx *db.Tx, c Child, rowID string) (int64, error) {
	order := c.Order
	if !tx.OneWriter() {
		order = cmp.Or(c.PostgresOrder, order)
	}
	last := strings.ReplaceAll(order, ",", " DESC,") + " DESC"
	return tx.Exec(ctx, `DELETE FROM `+c.Table+` WHERE `+c.Column+` = $1 AND (`+order+`) <= (SELECT `+order+` FROM
		(SELECT `+order+` FROM `+c.Table+` WHERE `+c.Column+` = $1 ORDER BY `+order+` LIMIT $2) x
		ORDER BY `+last+` LIMIT 1)`, db.ID(rowID), batchRows)
}

func deleteRow(ctx context.Context, tx *db.Tx, t Table, rowID string) {
	tx.Queue(ctx, `DELETE FROM `+t.Name+` WHERE id = $1 AND deleted_at <> 0`, db.ID(rowID))
}
