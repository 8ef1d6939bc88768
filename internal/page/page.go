// Package page cuts lists into pages by id.
//
// Ids are made in the order of time, so a cursor is just an id: a page stays where it is when rows before it come or go, even
// when the cursor's own row is gone. Lists run from the newest to the oldest.
//
// Whoever asks for what is before the newest that it knows sees all that is new, as far as ids are made where rows are
// committed (see package id): on SQLite in the order of commits, on PostgreSQL as far apart from it as transactions last.
package page

import (
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/db"
)

// Page is what of a list is wanted. After and Before are ids that are themselves left out; at most one is set.
type Page struct {
	Limit  int // 0 means all
	After  string
	Before string
}

// Select is a query for all rows of a list: SQL up to and including its WHERE, the column of the id, and the arguments.
type Select struct {
	Text string
	ID   string
	Args []any
}

// all bounds a list that has no limit, so that no list is ever unbounded in memory.
const all = 100_000

// Query returns a page, newest first, and whether there are more rows beyond it in the direction in which the
// caller travels.
func Query[T any](ctx context.Context, r db.Reader, s Select, p Page, scan func(db.Row) (T, error)) ([]T, bool, error) {
	limit := p.Limit
	if limit <= 0 {
		limit = all
	}
	text, args, order := s.Text, slices.Clone(s.Args), "DESC"
	switch {
	case p.After != "":
		args = append(args, p.After)
		text += fmt.Sprintf(" AND %s < $%d", s.ID, len(args))
	case p.Before != "":
		args, order = append(args, p.Before), "ASC"
		text += fmt.Sprintf(" AND %s > $%d", s.ID, len(args))
	}
	args = append(args, limit+1)
	text += fmt.Sprintf(" ORDER BY %s %s LIMIT $%d", s.ID, order, len(args))
	rows, err := r.Query(ctx, text, args...)
	items, err := db.Collect(rows, err, scan)
	if err != nil {
		return nil, false, fmt.Errorf("read a page: %w", err)
	}
	more := len(items) > limit
	if more {
		items = items[:limit]
	}
	if p.Before != "" {
		slices.Reverse(items)
	}
	return items, more, nil
}

// chunk is how many rows All reads at once.
const chunk = 500

// All goes through a whole list, newest first, and reads it in chunks: however long the list is, no more than a chunk is in
// memory, and nothing of the database is held while the caller works. Rows that come after it has begun are not in it. id
// returns the id of an item. An error ends it.
func All[T any](ctx context.Context, r db.Reader, s Select, scan func(db.Row) (T, error), id func(T) string) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for p, more := (Page{Limit: chunk}), true; more; {
			var items []T
			var err error
			if items, more, err = Query(ctx, r, s, p, scan); err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
				p.After = id(item)
			}
		}
	}
}
