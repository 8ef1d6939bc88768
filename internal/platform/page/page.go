// Package page reads lists in pages, by cursor. It has a query for each page, for a whole list in chunks, and for pages
// and parts of a list whose condition no index serves.
//
// # Invariants
//
// Ids are made in the order of time, so a cursor is just an id, and stays valid when rows before it are inserted or
// deleted, even when its own row is deleted. Lists run from newest to oldest, or the other way round if the query says
// so.
//
// A caller that repeatedly asks for what is before the newest row that it knows gets all new rows, provided that ids
// are made where rows are committed (see package id): on SQLite in the order of commits, on PostgreSQL out of order
// by no more than transactions last.
//
// # When it fails
//
// An error of the database is returned, and no items with it.
//
// # What it does not do
//
// It does not restrict a list to a team or check cursors: the WHERE of the query and the caller do.
package page

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// Page selects a part of a list. After and Before are cursors, whose own rows are left out; at most one is set.
type Page struct {
	Limit  int // 0 means all, up to Most
	After  string
	Before string
	until  string // the id at which the page ends at the latest, away from the cursor; "" means to the end of the list
}

// Select is a query for all rows of a list: SQL up to and including a WHERE clause, the column of the id, and the
// arguments.
type Select struct {
	Text string
	ID   string
	Args []any

	OldestFirst bool // the list runs from oldest to newest
}

// Most is how many items a page without a limit has at most.
const Most = 100_000

// Most is how many items a page has at most.
func (p *Page) Most() int {
	if p.Limit <= 0 {
		return Most
	}
	return p.Limit
}

// Query returns a page, in the order of the list, and whether there are more rows beyond it: those that follow, or if
// p.Before is set, those that come before.
func Query[T any](ctx context.Context, r db.Reader, s Select, p Page, scan func(db.Row) (T, error)) ([]T, bool, error) {
	limit := p.Most()
	text, args := s.Text, slices.Clone(s.Args)
	order, beyond, within := s.direction(p)
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		args = append(args, cursor)
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, beyond, len(args))
	}
	if p.until != "" {
		args = append(args, p.until)
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, within, len(args))
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

// direction returns the order in which a page is read away from its cursor, and how the ids compare that come after
// another in that order, and those that do not. A page before a cursor is read backwards.
func (s *Select) direction(p Page) (order, beyond, within string) {
	if s.OldestFirst != (p.Before != "") {
		return "ASC", ">", "<="
	}
	return "DESC", "<", ">="
}

// chunk is how many rows All reads in one query.
const chunk = 500

// All iterates over a whole list, in its order, and reads it in chunks: at most one chunk is in memory, and no
// connection or transaction is held while the caller works. Rows that are inserted after it has begun are left out.
// id returns the id of an item. An error ends the iteration.
func All[T any](ctx context.Context, r db.Reader, s Select, scan func(db.Row) (T, error),
	id func(T) string) iter.Seq2[T, error] {
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

// Part returns, newest first, those of the next n rows of a list after a cursor that a condition selects, and the
// cursor of the part that follows, "" after the last. some is the query of all with the condition; its text begins
// like that of all and has the same arguments first. A part costs n rows by the index of the list, however few of them
// are selected, so a list can be read to its end by short queries. Rows that are inserted after the first part are left
// out. The column of the id must be named id; the function id returns that of an item.
func Part[T any](ctx context.Context, r db.Reader, all, some Select, after string, n int,
	scan func(db.Row) (T, error), id func(T) string) (items []T, next string, err error) {
	p := Page{Limit: n, After: after}
	if all.Text != some.Text {
		if p.until, err = endOfRows(ctx, r, all, p, n); err != nil {
			return nil, "", err
		}
	}
	items, more, err := Query(ctx, r, some, p, scan)
	if err != nil {
		return nil, "", err
	}
	if next = p.until; next == "" && more {
		next = id(items[len(items)-1])
	}
	return items, next, nil
}

// Steps of Search, in rows of the list. The first ones are small, because most conditions fill a page soon.
const (
	firstStep = 200
	stepMost  = 2000
	stepsMost = 50
)

// Search returns a page of those rows of a list that a condition selects, which no index serves: Query with a bound on
// its cost, and on that of each statement. all and some are as for [Part]. more says that there may be more rows beyond
// the page. The page is full, or at the end of the list, unless some 100,000 rows were looked at: then next is the
// cursor from which to search on in the same direction. Otherwise next is "". p must have a limit.
func Search[T any](ctx context.Context, r db.Reader, all, some Select, p Page, scan func(db.Row) (T, error)) (items []T,
	more bool, next string, err error) {
	if all.Text == some.Text {
		items, more, err = Query(ctx, r, some, p, scan)
		return items, more, "", err
	}
	limit, backwards := p.Limit, p.Before != ""
	for step, rows := 0, firstStep; step < stepsMost; step, rows = step+1, min(4*rows, stepMost) {
		if p.until, err = endOfRows(ctx, r, all, p, rows); err != nil {
			return nil, false, "", err
		}
		// A page that has become full goes on until one more row shows that there are more.
		p.Limit = max(limit-len(items), 1)
		found, beyond, err := Query(ctx, r, some, p, scan)
		if err != nil {
			return nil, false, "", err
		}
		if len(items) == limit && len(found) > 0 {
			return items, true, "", nil
		}
		if backwards {
			items = append(found, items...)
		} else {
			items = append(items, found...)
		}
		if beyond || p.until == "" {
			return items, beyond, "", nil
		}
		if next = p.until; backwards {
			p.Before = next
		} else {
			p.After = next
		}
	}
	return items, true, next, nil
}
