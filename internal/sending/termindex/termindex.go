// Package termindex builds and reads segments of a search index. A segment covers a list of documents. For each term,
// it has the documents that contain the term, so a search reads a few rows instead of all documents.
//
// # Format
//
// A segment consists of rows with a key and at most [maxRow] bytes of data, which a table keeps in the order of the
// keys. The documents of a segment are numbered from 0, in the order of their ids.
//
//   - The rows whose key begins with 0 have the ids of the documents, 16 bytes each.
//   - The other rows have terms in order, each with its documents. A row's key is its first term, but the key of the
//     first of these rows is the byte 1. A term shares its beginning with the term before it. Documents are stored as
//     distances: a varint of the distance times two, plus 1 if the length of a run follows.
//
// A term ends with a byte for its [Kind]. Terms of words and addresses have a zero byte before it, so that all terms
// with a beginning are next to each other. A term with many documents occupies several entries or rows.
//
// # Failures
//
// Rows that cannot be decoded cause the error [ErrDamaged]. No input makes a function of the package panic.
//
// # Out of scope
//
// The package has no tables: callers store the rows and read them by their keys. It does not know what is deleted.
package termindex

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// ID is the id of a document.
type ID = [16]byte

// Kind says what a term is.
type Kind byte

// The kinds of terms. The values are part of the format.
const (
	SubjectWord   Kind = 's'
	RecipientWord Kind = 'r'
	SenderWord    Kind = 'm'
	Recipient     Kind = 't' // a whole address
	Sender        Kind = 'f'
	RecipientHost Kind = 'T' // the domain of an address
	SenderHost    Kind = 'F'
	Key           Kind = 'k' // the id of an API key, or of what a Kind below names
	Domain        Kind = 'd'
	Template      Kind = 'e'
	Broadcast     Kind = 'b'
	Tag           Kind = 'g' // a tag's name with its value
	TagName       Kind = 'n'
)

// Term returns the term of a kind and a text.
func Term(k Kind, text string) string {
	switch k {
	case SubjectWord, RecipientWord, SenderWord:
		text = shorten(text)
	default:
		if len(text) > maxTerm {
			text = text[:maxTerm]
		}
	}
	return strings.ReplaceAll(firstByte(text), "\x00", "\x01") + "\x00" + string(k)
}

// firstByte returns a text whose first byte is greater than that of the keys that are no terms.
func firstByte(text string) string {
	if text == "" || text[0] <= 1 {
		return "\x02" + text
	}
	return text
}

// maxTerm is the maximum length of a text in a term, in bytes. Longer texts are shortened.
const maxTerm = 320

// Pattern selects terms. A pattern of words selects all words that begin with the text; all other patterns select one
// term.
type Pattern struct {
	Text  string
	Kinds []Kind
	Words bool
}

// Range returns the first term that the pattern may select, and the first greater term that it cannot select.
func (p *Pattern) Range() (from, to string) {
	if !p.Words {
		from = strings.TrimSuffix(Term(p.Kinds[0], p.Text), string(p.Kinds[0]))
		return from, from + "\xff"
	}
	from = firstByte(shorten(p.Text))
	return from, from + "\xff"
}

// selects reports whether the pattern selects a term.
func (p *Pattern) selects(term []byte) bool {
	n := len(term)
	return n >= 2 && term[n-2] == 0 && slices.Contains(p.Kinds, Kind(term[n-1]))
}

// Row is a row of a segment.
type Row struct{ Key, Data []byte }

const (
	// maxRow is the maximum size of a row's data, in bytes, except for the row of a single long term. With its key, a row
	// has fewer than 1,000 bytes, so that four rows fit into a page of SQLite.
	maxRow    = 900
	idsPerRow = 56
	maxList   = 350 // maximum size of an entry's documents, in bytes
)

// firstTerms is the key of the first row with terms.
var firstTerms = []byte{1}

// IDKey returns the key of the row that has the id of a document, and the index of the id in that row.
func IDKey(document int) (key []byte, index int) {
	return binary.BigEndian.AppendUint32([]byte{0}, uint32(document/idsPerRow)), document % idsPerRow
}

// IDAt returns the id with an index in a row of ids.
func IDAt(data []byte, index int) (x ID, err error) {
	if index < 0 || len(data) < (index+1)*len(x) {
		return x, ErrDamaged
	}
	return ID(data[index*len(x):]), nil
}

// ErrDamaged means that a row of a segment cannot be decoded.
var ErrDamaged = errors.New("a row of the search index is damaged")

// Builder makes a segment from documents. It keeps each term once, so its memory is a fraction of that of the
// documents.
type Builder struct {
	ids   []ID
	lists map[string][]uint32 // the documents of each term
}

// Add adds a document with its terms. Documents must be added in the order of their ids.
func (b *Builder) Add(x ID, terms []string) {
	if b.lists == nil {
		b.lists = map[string][]uint32{}
	}
	n := uint32(len(b.ids))
	b.ids = append(b.ids, x)
	for _, t := range terms {
		if l := b.lists[t]; len(l) == 0 || l[len(l)-1] != n {
			b.lists[t] = append(l, n)
		}
	}
}

// Rows returns the rows of the segment.
func (b *Builder) Rows() []Row {
	w := newWriter()
	for _, x := range b.ids {
		w.addID(x)
	}
	for _, t := range slices.Sorted(maps.Keys(b.lists)) {
		w.add([]byte(t), b.lists[t])
	}
	return w.finish()
}

// writer makes the rows of a segment from terms in their order.
type writer struct {
	ids, rows []Row
	documents int
	block     Row
	last      []byte // the last term
	continued uint16 // the number of rows that begin with the last term, after its first row
	list      []byte
}

func newWriter() *writer { return &writer{block: Row{Key: firstTerms}} }

func (w *writer) addID(x ID) {
	key, index := IDKey(w.documents)
	if index == 0 {
		w.ids = append(w.ids, Row{Key: key})
	}
	r := &w.ids[len(w.ids)-1]
	r.Data = append(r.Data, x[:]...)
	w.documents++
}

// add appends a term with its documents.
func (w *writer) add(term []byte, documents []uint32) {
	for len(documents) > 0 {
		var n int
		w.list, n = appendList(w.list[:0], documents)
		documents = documents[n:]
		w.addEntry(term)
	}
}

func (w *writer) addEntry(term []byte) {
	same := bytes.Equal(term, w.last)
	if !same {
		w.continued = 0
	}
	if size := len(w.block.Data); size > 0 && size+len(term)+len(w.list)+6 > maxRow {
		w.rows = append(w.rows, w.block)
		w.block = Row{Key: bytes.Clone(term)}
		if same { // no other term has a key between this one and the term's first key
			w.continued++
			w.block.Key = binary.BigEndian.AppendUint16(w.block.Key, w.continued)
		}
	}
	shared := 0
	if len(w.block.Data) > 0 {
		for shared < len(term) && shared < len(w.last) && term[shared] == w.last[shared] {
			shared++
		}
	}
	d := binary.AppendUvarint(w.block.Data, uint64(shared))
	d = binary.AppendUvarint(d, uint64(len(term)-shared))
	d = append(d, term[shared:]...)
	d = binary.AppendUvarint(d, uint64(len(w.list)))
	w.block.Data = append(d, w.list...)
	w.last = append(w.last[:0], term...)
}

func (w *writer) finish() []Row { return append(w.ids, append(w.rows, w.block)...) }

// appendList appends as many of the documents as an entry may have, and returns their number.
func appendList(list []byte, documents []uint32) (_ []byte, n int) {
	next := uint32(0) // the first document that the next distance can name
	for n < len(documents) && len(list) < maxList {
		run := 1
		for n+run < len(documents) && documents[n+run] == documents[n]+uint32(run) {
			run++
		}
		distance := uint64(documents[n]-next) << 1
		if run > 2 {
			list = binary.AppendUvarint(binary.AppendUvarint(list, distance|1), uint64(run))
		} else {
			list, run = binary.AppendUvarint(list, distance), 1
		}
		next = documents[n] + uint32(run)
		n += run
	}
	return list, n
}

// MaxDocuments is the maximum number of documents of a segment.
const MaxDocuments = 1 << 16

// readList calls f with each run of documents in a list, which has the numbers from first to end-1.
func readList(list []byte, f func(first, end int)) error {
	next := 0
	for len(list) > 0 {
		v, n := binary.Uvarint(list)
		if n <= 0 || v>>1 >= MaxDocuments {
			return ErrDamaged
		}
		list = list[n:]
		first, run := next+int(v>>1), uint64(1)
		if v&1 == 1 {
			if run, n = binary.Uvarint(list); n <= 0 || run > MaxDocuments {
				return ErrDamaged
			}
			list = list[n:]
		}
		if next = first + int(run); next > MaxDocuments {
			return ErrDamaged
		}
		f(first, next)
	}
	return nil
}

// entries calls f with each entry of a row, in order. The arguments are valid until f returns.
func entries(data []byte, f func(term, list []byte) error) error {
	var term []byte
	take := func() (int, bool) {
		v, n := binary.Uvarint(data)
		if n <= 0 || v > uint64(len(data)) && v > maxTerm*4 {
			return 0, false
		}
		data = data[n:]
		return int(v), true
	}
	for len(data) > 0 {
		shared, ok1 := take()
		more, ok2 := take()
		if !ok1 || !ok2 || shared > len(term) || more > len(data) {
			return ErrDamaged
		}
		term = append(term[:shared], data[:more]...)
		data = data[more:]
		size, ok := take()
		if !ok || size > len(data) {
			return ErrDamaged
		}
		if err := f(term, data[:size]); err != nil {
			return err
		}
		data = data[size:]
	}
	return nil
}

// Collect adds the documents that a row of terms has for a pattern.
func (p *Pattern) Collect(data []byte, to *Set) error {
	from, end := p.Range()
	return entries(data, func(term, list []byte) error {
		if !p.selects(term) || string(term) < from || string(term) >= end {
			return nil
		}
		return readList(list, to.add)
	})
}

// Merge returns the rows of one segment with the documents of several segments, whose rows are in the order of their
// keys. The documents of each segment must have greater ids than those of the segments before it.
func Merge(segments [][]Row) ([]Row, error) {
	w := newWriter()
	cursors := make([]*cursor, len(segments))
	for i, rows := range segments {
		n := 0
		for n < len(rows) && len(rows[n].Key) > 0 && rows[n].Key[0] == 0 {
			n++
		}
		offset := uint32(w.documents)
		for _, r := range rows[:n] {
			for ids := r.Data; len(ids) >= len(ID{}); ids = ids[len(ID{}):] {
				w.addID(ID(ids))
			}
		}
		cursors[i] = &cursor{rows: rows[n:], offset: offset}
		if err := cursors[i].next(); err != nil {
			return nil, err
		}
	}
	if w.documents > MaxDocuments {
		return nil, fmt.Errorf("%d documents are too many for a segment", w.documents)
	}
	for {
		var least []byte
		for _, c := range cursors {
			if c.term != nil && (least == nil || bytes.Compare(c.term, least) < 0) {
				least = c.term
			}
		}
		if least == nil {
			return w.finish(), nil
		}
		term := bytes.Clone(least)
		var documents []uint32
		for _, c := range cursors {
			for c.term != nil && bytes.Equal(c.term, term) {
				documents = append(documents, c.documents...)
				if err := c.next(); err != nil {
					return nil, err
				}
			}
		}
		w.add(term, documents)
	}
}

// cursor reads the entries of a segment one after another.
type cursor struct {
	rows      []Row
	offset    uint32
	terms     [][]byte // of the current row
	lists     [][]uint32
	term      []byte // nil after the last entry
	documents []uint32
}

func (c *cursor) next() error {
	for len(c.terms) == 0 {
		if len(c.rows) == 0 {
			c.term = nil
			return nil
		}
		err := entries(c.rows[0].Data, func(term, list []byte) error {
			var documents []uint32
			err := readList(list, func(first, end int) {
				for d := first; d < end; d++ {
					documents = append(documents, uint32(d)+c.offset)
				}
			})
			c.terms, c.lists = append(c.terms, bytes.Clone(term)), append(c.lists, documents)
			return err
		})
		if err != nil {
			return err
		}
		c.rows = c.rows[1:]
	}
	c.term, c.terms = c.terms[0], c.terms[1:]
	c.documents, c.lists = c.lists[0], c.lists[1:]
	return nil
}
