// Package page reads lists in pages, by cursor. The package can query one page, read a whole list in chunks, and search
// lists with a condition that no index supports.
//
// # Invariants
//
// Ids are generated in chronological order, so an id serves as a cursor. A cursor stays valid if rows before it are
// inserted or deleted, even if its own row is deleted. Lists run from newest to oldest unless the query says otherwise.
//
// A client that polls for rows newer than its newest known row gets all new rows. This requires that ids are generated
// shortly before the commit of their rows (see package id). SQLite commits rows in id order. On PostgreSQL, the order
// of commits may differ from the order of ids by at most the duration of a transaction.
//
// # Failures
//
// If the database fails, functions return its error and no items.
//
// # Out of scope
//
// The package does not restrict a list to a team; the WHERE clause of the query must do so. The caller, not this
// package, must check that cursors are valid.
package page

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Page selects a section of a list. After and Before are cursors; the page does not include the cursor's own row. At
// most one of After and Before may be set.
type Page struct {
	Limit  int // maximum number of rows; 0 means all, up to Most
	After  string
	Before string
	until  string // bound of the page at its end; "" means no bound
}

// Select is a query for all rows in a list: the SQL up to and including a WHERE clause, the id column, which holds ids
// of 16 bytes ([db.ID]), and the arguments.
type Select struct {
	Text string
	ID   string
	Args []any

	OldestFirst bool // whether the list is ordered from oldest to newest

	// InSpans is set if the table is partitioned by the time in its ids. Query, Part and Search then look for the rows
	// near the cursor first, because each statement takes time for every partition that may have its rows.
	InSpans bool
}

// Most is the maximum number of items in a page that has no limit.
const Most = 100_000

// Most returns the maximum number of items in the page.
func (p *Page) Most() int {
	if p.Limit <= 0 {
		return Most
	}
	return p.Limit
}

// Query returns a page in list order, and reports whether more rows follow the page. If p.Before is set, Query reports
// whether more rows precede the page.
func Query[T any](ctx context.Context, r db.Reader, s Select, p Page, scan func(db.Row) (T, error)) ([]T, bool, error) {
	limit := p.Most()
	var items []T
	for _, part := range s.parts(p) {
		rows, err := query(ctx, r, &s, &part, limit+1-len(items))
		some, err := db.Collect(rows, err, scan)
		if err != nil {
			return nil, false, fmt.Errorf("read a page: %w", err)
		}
		if items = append(items, some...); len(items) > limit {
			break
		}
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

// spans are the lengths of the parts of a page in a partitioned table. The last part has no end.
var spans = []time.Duration{2 * 24 * time.Hour, 32 * 24 * time.Hour}

// parts divides a page in a partitioned table into parts by the time in its ids, in the order in which they are read.
// Other pages are one part.
func (s *Select) parts(p Page) (parts []Page) {
	_, beyond, _ := s.direction(p)
	now, ascending, backwards := time.Now(), beyond == ">", p.Before != ""
	at, ok := now, !ascending
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		at, ok = id.Time(cursor)
	}
	if !s.InSpans || !ok {
		return []Page{p}
	}
	for _, length := range spans {
		bound, last := id.First(at.Add(-length)), false
		if ascending {
			bound, last = id.First(at.Add(length)), at.Add(length).After(now)
		}
		if last || p.until != "" && (p.until < bound) == ascending {
			break
		}
		part := p
		part.until = bound
		parts = append(parts, part)
		if backwards {
			p.Before = bound
		} else {
			p.After = bound
		}
	}
	return append(parts, p)
}

// query selects at most n rows of a page.
func query(ctx context.Context, r db.Reader, s *Select, p *Page, n int) (db.Rows, error) {
	text, args := s.Text, slices.Clone(s.Args)
	order, beyond, within := s.direction(*p)
	if cursor := cmp.Or(p.After, p.Before); cursor != "" {
		args = append(args, db.ID(cursor))
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, beyond, len(args))
	}
	if p.until != "" {
		args = append(args, db.ID(p.until))
		text += fmt.Sprintf(" AND %s %s $%d", s.ID, within, len(args))
	}
	args = append(args, n)
	text += fmt.Sprintf(" ORDER BY %s %s LIMIT $%d", s.ID, order, len(args))
	return r.Query(ctx, text, args...)
}

// direction returns the order in which a page is read, starting at its cursor. The results beyond and within are SQL
// operators that compare an id with a bound. The operator beyond matches ids after the bound in that order, and within
// matches all other ids. A page before a cursor is read backwards.
func (s *Select) direction(p Page) (order, beyond, within string) {
	if s.OldestFirst != (p.Before != "") {
		return "ASC", ">", "<="
	}
	return "DESC", "<", ">="
}

// chunk is the number of rows that All reads in one query.
const chunk = 500

// All iterates over a whole list, in list order. All reads the list in chunks: at most one chunk is in memory, and All
// holds no connection or transaction while the caller processes items. All omits rows that are inserted after the
// iteration has begun. The id function returns an item's id. If a query fails, All yields the error and ends.
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

// Part reads the next n rows of a list after a cursor and returns those that match a condition, newest first. The
// returned cursor is for the next call; it is "" at the end of the list. The query all reads the whole list; the query
// some consists of the same text followed by the condition. The arguments of the condition follow the arguments of the
// whole query. Each call reads n rows using the list's index, even if few rows match, so callers can read the whole
// list with short queries. Part omits rows that are inserted after the first call. The id column must be named id; the
// id function returns the id of an item.
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

// Step searches the next n rows beyond a page's cursor, and returns at most limit matching rows in list order. The
// parameters all and some have the same meaning as in [Part]. The returned cursor is for the next step in the same
// direction; it is "" at the end of the list.
func Step[T any](ctx context.Context, r db.Reader, all, some Select, p Page, n, limit int,
	scan func(db.Row) (T, error), id func(T) string) (items []T, next string, err error) {
	p.Limit = limit
	if all.Text != some.Text {
		if p.until, err = endOfRows(ctx, r, all, p, n); err != nil {
			return nil, "", err
		}
	}
	items, more, err := Query(ctx, r, some, p, scan)
	if err != nil {
		return nil, "", err
	}
	if next = p.until; more {
		next = id(items[len(items)-1])
		if p.Before != "" {
			next = id(items[0])
		}
	}
	return items, next, nil
}

// Numbers of rows that the individual steps of Search read. The first steps of Search are small, because most
// conditions fill a page after few rows.
const (
	firstStep = 200
	stepMost  = 2000
	stepsMost = 50
)

// Search returns a page of the rows in a list that match a condition not supported by any index. Unlike Query, Search
// limits the number of rows that the call and each of its statements read. The parameters all and some have the same
// meaning as in [Part]. Search returns more == true if more rows may follow the page. Search stops after it has read
// about 100,000 rows, even if the page is not full. If Search stops early, it returns the cursor from which to continue
// in the same direction; otherwise, the returned cursor is "". The page p must have a limit.
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
		// After the page is full, Search continues until it finds one more matching row.
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
