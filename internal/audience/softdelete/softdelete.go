// Package softdelete deletes rows such as topics and segments in two steps, because many contacts' rows may refer to
// them.
//
// [Mark] marks a row as deleted. Queries skip marked rows, so the row can no longer be read after the commit. [Sweep]
// later deletes the rows that refer to a marked row, in short transactions, and then the marked row itself.
//
// A transaction that begins before Mark and commits after Sweep may leave behind a row that refers to a deleted row. No
// query returns such a leftover row, and it is deleted together with its contact.
package softdelete

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// Table is a table whose rows can be marked as deleted. Such a table has the columns id, team_id and deleted_at.
type Table struct {
	Name     string
	NotFound func() error // returns the fault to report if a row does not exist
	Children []Child
}

// Child is a table whose rows refer to rows in a Table. It has the column team_id.
type Child struct {
	Table, Column string
	Order         string // columns that follow Column in the index that begins with Column
	PostgresOrder string // like Order, but for PostgreSQL, if the index there has different columns
}

// These constants limit one call to Sweep.
const (
	maxRows   = 1000 // maximum number of marked rows per table
	batchRows = 500  // rows deleted per transaction
)

// Sweep deletes up to 1,000 marked rows in a table, and the rows that refer to them.
func Sweep(ctx context.Context, d *db.DB, t Table) error {
	marked, err := markedRows(ctx, d.Reader, t, maxRows)
	if err != nil {
		return fmt.Errorf("look for deleted rows of %s: %w", t.Name, err)
	}
	for _, m := range marked {
		if err := sweepRow(ctx, d, t, m); err != nil {
			return fmt.Errorf("remove %s from %s: %w", m.id, t.Name, err)
		}
	}
	return nil
}

func sweepRow(ctx context.Context, d *db.DB, t Table, m markedRow) error {
	for _, c := range t.Children {
		err := d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteChildren(ctx, tx, c, m) })
		if err != nil {
			return err
		}
	}
	return d.Update(ctx, func(tx *db.Tx) error { deleteRow(ctx, tx, t, m); return nil })
}
