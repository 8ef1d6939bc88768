package search

import (
	"bytes"
	"context"
	"iter"
	"slices"
	"sort"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/sending/termindex"
)

// candidate is an email of a segment that has all terms of a search.
type candidate struct {
	at       int // index of its segment
	document int
	id       string
}

// group searches adjoining segments, and returns how many rows it read. It ends early if the page is full or the time
// is over.
func (x *search[T]) group(ctx context.Context, some []segment) (rows int, err error) {
	sets, rows, err := x.sets(ctx, some)
	if err != nil {
		return rows, err
	}
	first, err := x.startIn(ctx, &some[0])
	if err != nil {
		return rows, err
	}
	next, stop := iter.Pull(x.candidates(some, sets, first))
	defer stop()
	for size := max(64, x.need); ; size = min(2*size, 1024) {
		var chunk []candidate
		for len(chunk) < size {
			c, ok := next()
			if !ok {
				break
			}
			chunk = append(chunk, c)
		}
		if len(chunk) == 0 {
			x.pass(x.far(&some[len(some)-1]))
			return rows, nil
		}
		if err := x.take(ctx, some, chunk); err != nil {
			return rows, err
		}
		if x.lo >= x.hi || x.over() {
			return rows, nil
		}
	}
}

// startIn returns the first document of a segment, in the order of the search, that lies between lo and hi.
func (x *search[T]) startIn(ctx context.Context, g *segment) (document int, err error) {
	switch {
	case x.up && x.lo >= g.from:
		return x.rank(ctx, g, neighbor(x.lo, 1))
	case !x.up && x.hi <= g.last:
		n, err := x.rank(ctx, g, x.hi)
		return n - 1, err
	case x.up:
		return 0, nil
	}
	return termindex.MaxDocuments, nil
}

// rank returns the number of documents of a segment whose ids are less than the given one.
func (x *search[T]) rank(ctx context.Context, g *segment, emailID string) (int, error) {
	var failed error
	var key, data []byte
	n := sort.Search(g.emails, func(document int) bool {
		k, index := termindex.IDKey(document)
		if !bytes.Equal(k, key) && failed == nil {
			rows, err := idRows(ctx, x.DB, x.TeamID, []segment{*g}, [][]byte{k})
			if err == nil && len(rows) == 0 {
				err = errReplaced
			}
			if failed = err; err == nil {
				key, data = k, rows[0].Data
			}
		}
		if failed != nil {
			return true
		}
		u, err := termindex.IDAt(data, index)
		failed = err
		return uuid.UUID(u).String() >= emailID
	})
	return n, failed
}

// sets returns the documents of each segment that have a term for each pattern. A set is nil if it is empty.
func (x *search[T]) sets(ctx context.Context, some []segment) (sets []*termindex.Set, rows int, err error) {
	sets = make([]*termindex.Set, len(some))
	left := make([]int, len(some)) // indexes of the segments that may have matching emails
	for i := range left {
		left[i] = i
	}
	for n, p := range x.patterns {
		of := make([]segment, len(left))
		for i, at := range left {
			of[i] = some[at]
		}
		from, to := p.Range()
		found, err := termsIn(ctx, x.DB, x.TeamID, of, from, to)
		if err != nil {
			return nil, rows, err
		}
		rows += len(found)
		these, whole := make([]termindex.Set, len(left)), make([]bool, len(left))
		for _, r := range found {
			whole[r.at] = whole[r.at] || len(r.Key) > 0 && string(r.Key) <= from
			if err := p.Collect(r.Data, &these[r.at]); err != nil {
				return nil, rows, err
			}
		}
		var still []int
		for i, at := range left {
			if !whole[i] {
				return nil, rows, errReplaced
			}
			if n > 0 {
				these[i].Intersect(sets[at])
			}
			if sets[at] = nil; !these[i].Empty() {
				sets[at] = &these[i]
				still = append(still, at)
			}
		}
		if left = still; len(left) == 0 {
			break
		}
	}
	return sets, rows, nil
}

// candidates iterates over the documents of all sets in the order of the search. In the first segment, it begins with
// the given document.
func (x *search[T]) candidates(some []segment, sets []*termindex.Set, first int) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		for at := range some {
			if sets[at] == nil {
				continue
			}
			documents := sets[at].Descending()
			if x.up {
				documents = sets[at].Ascending()
			}
			for d := range documents {
				if at == 0 && (x.up && d < first || !x.up && d > first) {
					continue
				}
				if !yield(candidate{at: at, document: d}) {
					return
				}
			}
		}
	}
}

// take reads the emails of candidates, and appends those that the search selects.
func (x *search[T]) take(ctx context.Context, some []segment, chunk []candidate) error {
	if err := x.readIDs(ctx, some, chunk); err != nil {
		return err
	}
	last := chunk[len(chunk)-1].id
	var ids []string
	for _, c := range chunk {
		if c.id > x.lo && c.id < x.hi {
			ids = append(ids, c.id)
		}
	}
	if len(ids) > 0 {
		found, err := x.ByID(ctx, ids, slices.Min(ids), slices.Max(ids))
		if err != nil {
			return err
		}
		for _, emailID := range ids {
			if e, ok := found[emailID]; ok && x.selects(&e) {
				x.all = append(x.all, e)
			}
		}
	}
	x.pass(last)
	return nil
}

// readIDs sets the ids of candidates.
func (x *search[T]) readIDs(ctx context.Context, some []segment, chunk []candidate) error {
	type place struct {
		at  int
		key string
	}
	var of []segment
	var keys [][]byte
	rows := map[place]int{}
	for _, c := range chunk {
		key, _ := termindex.IDKey(c.document)
		if p := (place{c.at, string(key)}); rows[p] == 0 {
			of, keys = append(of, some[c.at]), append(keys, key)
			rows[p] = len(of)
		}
	}
	found, err := idRows(ctx, x.DB, x.TeamID, of, keys)
	if err != nil {
		return err
	}
	data := make([][]byte, len(of))
	for _, r := range found {
		data[r.at] = r.Data
	}
	for i := range chunk {
		c := &chunk[i]
		key, index := termindex.IDKey(c.document)
		row := data[rows[place{c.at, string(key)}]-1]
		if row == nil {
			return errReplaced
		}
		u, err := termindex.IDAt(row, index)
		if err != nil {
			return err
		}
		c.id = uuid.UUID(u).String()
	}
	return nil
}
