package api

import (
	"fmt"
	"iter"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/platform/page"
)

// listChunk is how many items of a list without a limit are in memory at once. A list that has more is written while
// it is read.
const listChunk = 1000

// list is the envelope of every list (specification, List envelope).
type list[T any] struct {
	Object  string `json:"object"`
	HasMore bool   `json:"has_more"`
	Data    []T    `json:"data"`

	rest *rest[T] // what follows Data and is still to be read; nil if nothing does
}

// rest is what follows the first items of a long list.
type rest[T any] struct {
	next func() ([]T, error)
	last func() bool // next has returned all
	more func() bool // then, there are more items beyond the list
}

func listOf[T, W any](items []T, more bool, wire func(T) W) list[W] {
	return list[W]{Object: "list", HasMore: more, Data: wired(items, wire)}
}

func wired[T, W any](items []T, wire func(T) W) []W {
	data := make([]W, len(items))
	for i, t := range items {
		data[i] = wire(t)
	}
	return data
}

// wholeList returns a page of a list that has all items in one answer unless there is a limit. read reads a page, and
// id returns the cursor of an item.
func wholeList[T, W any](p page.Page, read func(page.Page) ([]T, bool, error), id func(T) string,
	wire func(T) W) (list[W], error) {
	if p.Limit > 0 {
		items, more, err := read(p)
		return listOf(items, more, wire), err
	}
	chunks := page.NewChunks(p, listChunk, read, id)
	items, err := chunks.Next()
	l := listOf(items, chunks.More(), wire)
	if err == nil && !chunks.Last() {
		l.rest = &rest[W]{last: chunks.Last, more: chunks.More, next: func() ([]W, error) {
			items, err := chunks.Next()
			return wired(items, wire), err
		}}
	}
	return l, err
}

// long returns a list that is longer than one chunk as a stream.
func (l list[T]) long() (s stream, long bool) {
	if l.rest == nil {
		return stream{}, false
	}
	return stream{media: mediaJSON + "; charset=utf-8", kind: listing, parts: l.parts()}, true
}

// parts writes the list chunk by chunk. The member has_more comes last, because only the end shows what is beyond it.
func (l list[T]) parts() iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		part := fmt.Appendf(nil, `{"object":%q,"data":[`, l.Object)
		written, items, last := false, l.Data, false
		for l.Data = nil; ; {
			text, err := encode(items)
			if err != nil {
				yield(nil, err)
				return
			}
			if text = text[1 : len(text)-1]; len(text) > 0 {
				if written {
					part = append(part, ',')
				}
				part, written = append(part, text...), true
			}
			if last {
				part = append(strconv.AppendBool(append(part, `],"has_more":`...), l.rest.more()), '}')
			}
			if !yield(part, nil) || last {
				return
			}
			part = part[:0]
			if items, err = l.rest.next(); err != nil {
				yield(nil, err)
				return
			}
			last = l.rest.last()
		}
	}
}

// encode encodes an answer.
func encode(out any) ([]byte, error) {
	answer, err := json.Marshal(out, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return answer, nil
}
