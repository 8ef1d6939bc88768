// Package page reads lists in pages, by cursor. It has a query for each page, for a whole list in chunks, and for the
// parts of a list whose condition no index serves.
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
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/postrider/postrider/internal/db"
)

// Page selects a part of a list. After and Before are cursors, whose own rows are left out; at most one is set.
type Page struct {
	Limit  int // 0 means all, up to 100,000
	After  string
	Before string
	until  string // the last id; "" means to the end. Not together with Before.
}

// Select is a query for all rows of a list: SQL up to and including a WHERE clause, the column of the id, and the
// arguments.
type Select struct {
	Text string
	ID   string
	Args []any

	OldestFirst bool // the list runs from oldest to newest
}

// all is the limit of a list that has none, so that no list takes unbounded memory.
const all = 100_000

// Query returns a page, in the order of the list, and whether there are more rows beyond it: those that follow, or if
// p.Before is set, those that come before.
func Query[T any](ctx context.Context, r db.Reader, s Select, p Page, scan func(db.Row) (T, error)) ([]T, bool, error) {
	limit := p.Limit
	if limit <= 0 {
		limit = all
	}
	text, args := s.Text, slices.Clone(s.Args)
	order, beyond := "DESC", "<"
	if s.OldestFirst != (p.Before != "") { // a page before a cursor is read backwards
		order, beyond = "ASC", ">"
	}
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		args = append(args, cursor)
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, beyond, len(args))
	}
	if p.until != "" {
		args = append(args, p.until)
		text += fmt.Sprintf(" AND %s >= $%d", s.ID, len(args))
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
	if all.Text != some.Text {
		if next, err = last(ctx, r, all, after, n); err != nil {
			return nil, "", err
		}
	}
	items, more, err := Query(ctx, r, some, Page{Limit: n, After: after, until: next}, scan)
	if err != nil {
		return nil, "", err
	}
	if next == "" && more {
		next = id(items[len(items)-1])
	}
	return items, next, nil
}

// last returns the id of the nth row of a list after a cursor, "" if there are not so many.
func last(ctx context.Context, r db.Reader, s Select, after string, n int) (id string, err error) {
	text, args := s.Text, slices.Clone(s.Args)
	if after != "" {
		args = append(args, after)
		text += fmt.Sprintf(" AND %s < $%d", s.ID, len(args))
	}
	args = append(args, n)
	text += fmt.Sprintf(" ORDER BY %s DESC LIMIT $%d", s.ID, len(args))
	args = append(args, n)
	err = r.QueryRow(ctx, `SELECT COALESCE(MIN(id), '') FROM (`+text+`) x HAVING COUNT(*) = $`+
		fmt.Sprint(len(args)), args...).Scan(&id)
	if errors.Is(err, db.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("find the end of a part: %w", err)
	}
	return id, nil
}
