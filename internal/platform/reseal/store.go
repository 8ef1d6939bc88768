package reseal

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// row is a secret before, and after it was sealed again.
type row struct {
	id            string
	sealed, again []byte
}

// sealedRows returns the next secrets of a column, in the order of their ids.
func sealedRows(ctx context.Context, r db.Reader, c keyring.Column, after string) ([]row, error) {
	rows, err := r.Query(ctx, `SELECT id, `+c.Name+` FROM `+c.Table+` WHERE id > $1 AND LENGTH(`+c.Name+`) > 0
		ORDER BY id LIMIT $2`, db.ID(after), step)
	return db.Collect(rows, err, func(r db.Row) (x row, err error) {
		err = r.Scan((*db.ID)(&x.id), &x.sealed)
		return x, err
	})
}

// replace stores secrets that were sealed again, unless they have changed meanwhile.
func replace(ctx context.Context, tx *db.Tx, c keyring.Column, rows []row) {
	for _, r := range rows {
		tx.Queue(ctx, `UPDATE `+c.Table+` SET `+c.Name+` = $2 WHERE id = $1 AND `+c.Name+` = $3`, db.ID(r.id), r.again,
			r.sealed)
	}
}
