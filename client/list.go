package client

import (
	"errors"
	"iter"
	"net/url"
	"strconv"
)

// pageLimit is the number of items per page with which iterators read.
const pageLimit = 100

// List is a page of a list.
type List[T any] struct {
	Object  string `json:"object"`
	HasMore bool   `json:"has_more"` // whether there are further items
	Data    []T    `json:"data"`
	// Next is present if a search took long and ended early. Pass it as After to continue the search.
	Next string `json:"next,omitzero"`
	// SearchedBackTo is present together with Next: all items since this time were searched.
	SearchedBackTo Time `json:"searched_back_to,omitzero"`
}

// Page selects a page of a list. The zero value selects the first page.
type Page struct {
	Limit  int    // maximum number of items, 1 to 100; 0 means the default of the API
	After  string // ID of an item: the page begins after it
	Before string // ID of an item: the page ends before it
}

func (p Page) values() url.Values {
	q := query{}
	q.number("limit", p.Limit)
	q.text("after", p.After)
	q.text("before", p.Before)
	return url.Values(q)
}

// query holds query parameters. Zero values are left out.
type query url.Values

func (q query) text(name, value string) {
	if value != "" {
		q[name] = []string{value}
	}
}

func (q query) number(name string, value int) {
	if value != 0 {
		q.text(name, strconv.Itoa(value))
	}
}

// all returns an iterator over a list. The function read returns the page after a cursor, and id returns an item's
// cursor. A list with a parameter before cannot be read on from its pages.
func all[T any](after, before string, read func(after string) (*List[T], error), id func(*T) string) iter.Seq2[T,
	error] {
	return func(yield func(T, error) bool) {
		var zero T
		if before != "" {
			yield(zero, errors.New("an iterator over a list needs an empty Before"))
			return
		}
		for cursor := after; ; {
			l, err := read(cursor)
			if err != nil {
				yield(zero, err)
				return
			}
			for _, item := range l.Data {
				if !yield(item, nil) {
					return
				}
			}
			next := l.Next
			if next == "" && l.HasMore && len(l.Data) > 0 {
				next = id(&l.Data[len(l.Data)-1])
			}
			if next == "" || next == cursor {
				return
			}
			cursor = next
		}
	}
}
