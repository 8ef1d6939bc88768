// Package page reads lists in pages, by cursor. The package can query one page, read a whole list in chunks, and search
// lists with a condition that no index serves.
//
// # Invariants
//
// Ids are made in the order of time, so a cursor is an id. A cursor stays valid if rows before it are inserted or
// deleted, even if its own row is deleted. Lists run from newest to oldest unless the query says otherwise.
//
// A caller that repeatedly asks for the rows before its newest known row gets all new rows, provided that ids are made
// close to the commit of their rows (see package id). SQLite commits rows in the order of their ids. On PostgreSQL ids
// may be out of order by at most the duration of a transaction.
//
// # When it fails
//
// Errors of the database are returned without items.
//
// # What it does not do
//
// The package does not restrict a list to a team; the WHERE of the query does. The package does not check cursors; the
// caller does.
package page

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// Page selects a section of a list. After and Before are cursors, which exclude their own rows; at most one is set.
type Page struct {
	Limit  int // 0 means all, up to Most
	After  string
	Before string
	until  string // the last id that the page may contain, away from the cursor; "" means no bound
}

// Select is a query for all rows of a list: SQL up to and including a WHERE clause, the column of the id, and the
// arguments.
type Select struct {
	Text string
	ID   string
	Args []any

	OldestFirst bool // the list runs from oldest to newest
}

// Most is the most items of a page without a limit.
const Most = 100_000

// Most returns the most items that the page may have.
func (p *Page) Most() int {
	if p.Limit <= 0 {
		return Most
	}
	return p.Limit
}

// Query returns a page in the order of the list, and whether more rows follow it, or precede it if p.Before is set.
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

// direction returns the order in which a page is read, starting at its cursor. beyond and within are operators that
// compare an id with a bound: beyond matches ids after the bound in that order, within matches the others. A page
// before a cursor is read backwards.
func (s *Select) direction(p Page) (order, beyond, within string) {
	if s.OldestFirst != (p.Before != "") {
		return "ASC", ">", "<="
	}
	return "DESC", "<", ">="
}

// chunk is the number of rows that All reads in one query.
const chunk = 500

// All iterates over a whole list in its order. It reads the list in chunks: at most one chunk is in memory, and All
// holds no connection or transaction while the caller works. It omits rows that are inserted after it has begun. The
// function id returns an item's id. An error ends the iteration.
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

// Part reads the next n rows of a list after a cursor and returns those that match a condition, newest first. next is
// the cursor for the next call, "" at the end of the list. all is the query for the list. some is all with the
// condition: its text begins with the text of all, and its arguments begin with those of all. A call reads n rows by
// the list's index, even if few match, so short queries can read the whole list. Rows inserted after the first call are
// omitted. The id column must be named id; the function id returns the id of an item.
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

// Steps of Search, in rows of the list. The first steps are small, because most conditions fill a page soon.
const (
	firstStep = 200
	stepMost  = 2000
	stepsMost = 50
)

// Search returns a page of the rows of a list that match a condition which no index serves. Unlike Query, it bounds the
// cost of the call and of each statement. all and some are as for [Part]. more reports whether more rows may follow the
// page. Search stops after it has read about 100,000 rows, even if the page is not full. In that case next is the
// cursor from which to continue in the same direction; otherwise next is "". p must have a limit.
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
		// If the page is full, Search continues until it finds one more matching row.
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
