// Package softdelete deletes rows to which the rows of many contacts refer, such as topics and segments.
//
// [Mark] marks a row as deleted. Queries skip marked rows, so the row disappears at once. [Sweep] later deletes the
// rows that refer to it, in short transactions, and then the row itself.
//
// A transaction that began before the mark and commits after the sweep can leave a row that refers to a deleted one. No
// query returns such a row, and it is deleted together with its contact.
package softdelete

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// Table is a table with the columns id, team_id and deleted_at, whose rows can be marked as deleted.
type Table struct {
	Name     string
	NotFound func() error // the fault for a row that does not exist
	Children []Child
}

// Child is a table whose rows refer to rows of a Table.
type Child struct {
	Table, Column string
	Order         string // the other columns of the index that begins with Column
	PostgresOrder string // like Order, for PostgreSQL, if its index has other columns
}

// Limits of one sweep.
const (
	maxRows   = 1000 // marked rows of a table
	batchRows = 500  // rows deleted in one transaction
)

// Sweep deletes up to 1,000 marked rows of a table, and the rows that refer to them.
func Sweep(ctx context.Context, d *db.DB, t Table) error {
	marked, err := markedRows(ctx, d.Reader, t, maxRows)
	if err != nil {
		return fmt.Errorf("look for deleted rows of %s: %w", t.Name, err)
	}
	for _, rowID := range marked {
		if err := sweepRow(ctx, d, t, rowID); err != nil {
			return fmt.Errorf("remove %s from %s: %w", rowID, t.Name, err)
		}
	}
	return nil
}

func sweepRow(ctx context.Context, d *db.DB, t Table, rowID string) error {
	for _, c := range t.Children {
		err := d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteChildren(ctx, tx, c, rowID) })
		if err != nil {
			return err
		}
	}
	return d.Update(ctx, func(tx *db.Tx) error { deleteRow(ctx, tx, t, rowID); return nil })
}
