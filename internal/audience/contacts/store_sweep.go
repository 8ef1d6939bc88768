package contacts

import (
	"cmp"
	"context"
	"strings"

	"github.com/postrider/postrider/internal/platform/db"
)

// mark marks a row as deleted.
func mark(ctx context.Context, tx *db.Tx, k kind, teamID, rowID string) error {
	n, err := tx.Exec(ctx, `UPDATE `+k.table+` SET deleted_at = $3 WHERE id = $1 AND team_id = $2 AND deleted_at = 0`,
		rowID, teamID, tx.Now().UnixMicro())
	if err == nil && n == 0 {
		return k.missing()
	}
	return err
}

// deletedRows returns some rows of any team that are marked.
func deletedRows(ctx context.Context, r db.Reader, k kind, limit int) ([]string, error) {
	rows, err := r.Query(ctx, `SELECT id FROM `+k.table+` WHERE deleted_at <> 0 ORDER BY id LIMIT $1`, limit)
	return db.Collect(rows, err, scanText)
}

// deleteChildren deletes some of what refers to a row: the first of the index.
func deleteChildren(ctx context.Context, tx *db.Tx, c child, rowID string) (int64, error) {
	order := c.order
	if !tx.OneWriter() {
		order = cmp.Or(c.inPostgres, order)
	}
	last := strings.ReplaceAll(order, ",", " DESC,") + " DESC"
	return tx.Exec(ctx, `DELETE FROM `+c.table+` WHERE `+c.column+` = $1 AND (`+order+`) <= (SELECT `+order+` FROM
		(SELECT `+order+` FROM `+c.table+` WHERE `+c.column+` = $1 ORDER BY `+order+` LIMIT $2) x
		ORDER BY `+last+` LIMIT 1)`, rowID, eraseRows)
}

func deleteRow(ctx context.Context, tx *db.Tx, k kind, rowID string) {
	tx.Queue(ctx, `DELETE FROM `+k.table+` WHERE id = $1 AND deleted_at <> 0`, rowID)
}
