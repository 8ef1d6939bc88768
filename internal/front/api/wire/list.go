package wire

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/platform/page"
)

// ListChunk is the maximum number of list items that a request without a limit keeps in memory. Longer lists are
// streamed.
const ListChunk = 1000

// List is the JSON form of every list (specification, List envelope). List has no methods of its own: the compiler
// would compile them again for each T, in every package that imports the handlers.
type List[T any] struct {
	Object  string `json:"object"`
	HasMore bool   `json:"has_more"`
	Data    []T    `json:"data"`

	*longListReader `json:"-"` // reads the items that come after Data; nil if Data is complete
}

// longListReader reads a list of more than ListChunk items.
type longListReader struct {
	first any                 // the items of the first chunk, a slice
	next  func() (any, error) // returns the next chunk, a slice
	last  func() bool         // reports whether next has returned the last items of the list
	more  func() bool         // returns the value of has_more once the last items have been read
}

// ListOf returns items as a list. The argument more says whether there are items on the next page.
func ListOf[T, W any](items []T, more bool, convert func(T) W) List[W] {
	return List[W]{Object: "list", HasMore: more, Data: Items(items, convert)}
}

// Items converts each item to its JSON form. Items never returns nil.
func Items[T, W any](items []T, convert func(T) W) []W {
	data := make([]W, len(items))
	for i, t := range items {
		data[i] = convert(t)
	}
	return data
}

// FullList returns one page if p has a limit, and all items otherwise. The function read returns a page, id returns an
// item's cursor, and convert returns an item's JSON form. A list of more than ListChunk items is streamed.
func FullList[T, W any](p page.Page, read func(page.Page) ([]T, bool, error), id func(T) string,
	convert func(T) W) (List[W], error) {
	if p.Limit > 0 {
		items, more, err := read(p)
		return ListOf(items, more, convert), err
	}
	chunks := page.NewChunks(p, ListChunk, read, id)
	items, err := chunks.Next()
	l := ListOf(items, chunks.More(), convert)
	if err == nil && !chunks.Last() {
		l.longListReader = &longListReader{first: l.Data, last: chunks.Last, more: chunks.More, next: func() (any, error) {
			items, err := chunks.Next()
			return Items(items, convert), err
		}}
	}
	return l, err
}

// stream returns the list as a stream, or ok == false if the list fits in one chunk.
func (r *longListReader) stream() (s Stream, ok bool) {
	if r == nil {
		return Stream{}, false
	}
	return Stream{MediaType: MediaJSON + "; charset=utf-8", Kind: longList, Parts: r.parts}, true
}

// parts yields the list as JSON, chunk by chunk. The field has_more comes last, because its value is known only after
// the last chunk.
func (r *longListReader) parts(yield func([]byte, error) bool) {
	part := []byte(`{"object":"list","data":[`)
	written, items, last := false, r.first, false
	for r.first = nil; ; {
		text, err := Encode(items)
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
			part = append(strconv.AppendBool(append(part, `],"has_more":`...), r.more()), '}')
		}
		if !yield(part, nil) || last {
			return
		}
		part = part[:0]
		if items, err = r.next(); err != nil {
			yield(nil, err)
			return
		}
		last = r.last()
	}
}

// Encode returns a response as JSON.
func Encode(out any) ([]byte, error) {
	response, err := json.Marshal(out, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true),
		json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode the response: %w", err)
	}
	return response, nil
}
