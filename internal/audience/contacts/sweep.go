package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// kind is a kind of rows that belong to a team and that rows of many contacts refer to. One that is deleted is marked,
// and does not exist from then on for anybody who asks. What refers to it is deleted in steps, and then its row.
type kind struct {
	table    string
	missing  func() error // that there is none
	children []child
}

// child is a table whose rows refer to a kind.
type child struct {
	table, column string
	order         string // the rest of the columns of the index that begins with column
	inPostgres    string // the same on PostgreSQL, if its index has others
}

var (
	topics = kind{"topics", noTopic, []child{{"contact_topics", "topic_id", "contact_id", ""}}}

	segments = kind{"segments", noSegment, []child{{"contact_segments", "segment_id", "contact_id", ""},
		{"segment_counts", "segment_id", "counted_at", ""}}}

	properties = kind{"contact_properties", noProperty, []child{
		{"contact_texts", "property_id", "value, contact_id", "head, contact_id"},
		{"contact_numbers", "property_id", "value, contact_id", ""}}}
)

// sweepRows is how many deleted rows of a kind one call of Sweep removes.
const sweepRows = 1000

// Sweep removes the rows of deleted topics, segments and properties, and what refers to them. It is called
// periodically. What refers to them and is written by a transaction that began before the deletion and ends after the
// sweep stays until its contact is deleted: nobody finds it.
func (s *Service) Sweep(ctx context.Context) error {
	for _, k := range []kind{topics, segments, properties} {
		gone, err := deletedRows(ctx, s.d.Reader, k, sweepRows)
		if err != nil {
			return fmt.Errorf("look for deleted rows of %s: %w", k.table, err)
		}
		for _, rowID := range gone {
			if err := s.sweepRow(ctx, k, rowID); err != nil {
				return fmt.Errorf("remove %s from %s: %w", rowID, k.table, err)
			}
		}
	}
	return nil
}

func (s *Service) sweepRow(ctx context.Context, k kind, rowID string) error {
	for _, c := range k.children {
		err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteChildren(ctx, tx, c, rowID) })
		if err != nil {
			return err
		}
	}
	return s.d.Update(ctx, func(tx *db.Tx) error { deleteRow(ctx, tx, k, rowID); return nil })
}
