package fetch

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Reread is the note for a report if a list was read from its beginning again.
const Reread = "A list changed there while it was read, and was read again from its beginning. The report counts its " +
	"records again, as kept."

// Pages calls read with the cursor of each page of a list that a source holds in memory: first with "", and then with
// the cursor that read returned, until that is "".
func Pages(read func(cursor string) (next string, err error)) error {
	cursors := Cursors{Most: MaxPages}
	for cursor := ""; ; {
		next, err := read(cursor)
		if err != nil || next == "" {
			return err
		}
		if err := cursors.Next(next); err != nil {
			return err
		}
		cursor = next
	}
}

// Place is a position in lists that a source reads one after another. A cursor holds it as JSON, because the lists may
// be others when an import continues.
type Place struct {
	List  string `json:"list"`            // id of the list
	At    int    `json:"at,omitempty"`    // number of records before the position
	Last  string `json:"last,omitempty"`  // id of the last record before the position
	Page  string `json:"page,omitempty"`  // address of the page, in lists whose pages have one
	Again int    `json:"again,omitempty"` // how often reading began again; it makes cursors distinct
}

// Cursor returns the cursor of a place.
func (p Place) Cursor() string {
	text, _ := json.Marshal(p) // strings and numbers can be encoded
	return string(text)
}

// Find returns the place in a cursor, and the number of its list. The place is the beginning of the first list if the
// cursor is "" or is not one of these lists; in the second case, lost is set. There must be a list.
func Find(lists []string, cursor string) (p Place, number int, lost bool) {
	if cursor == "" {
		return Place{List: lists[0]}, 0, false
	}
	err := json.Unmarshal([]byte(cursor), &p)
	if number = slices.Index(lists, p.List); err == nil && number >= 0 {
		return p, number, false
	}
	return Place{List: lists[0], Again: p.Again + 1}, 0, true
}

// After returns the cursor of the list after the one with a number, or "".
func After(lists []string, number int) string {
	if number+1 >= len(lists) {
		return ""
	}
	return Place{List: lists[number+1]}.Cursor()
}

// Offsets reads lists whose pages are found by the number of records before them. Such numbers change when records are
// added or deleted meanwhile. A page therefore overlaps with the one before, and continues after the last record of
// that one. If that record is not found, the list is read again from its beginning.
type Offsets struct {
	Limit int // number of records in a page

	again int
}

// maxAgain is how often lists are read again before reading ends with an error. A later import begins to count anew.
const maxAgain = 10

// Offset returns the offset of the page for a place.
func (o *Offsets) Offset(p Place) int { return max(0, p.At-o.Limit/10) }

// Next finds the records after a place in the page at Offset, given the ids of the page's records. It returns the
// number of records to skip, and the place of the next page, which is nil at the end of the list. The list is known to
// have total records; 0 means that the number is not known. If the next place is the beginning of the same list, the
// whole page is skipped.
func (o *Offsets) Next(p Place, ids []string, total int) (skip int, next *Place, err error) {
	offset := o.Offset(p)
	if len(ids) > o.Limit {
		return 0, nil, fmt.Errorf("a page of the list %s has %d records, although %d were asked for", p.List, len(ids), o.Limit)
	}
	if p.At > 0 {
		skip = slices.Index(ids, p.Last) + 1
	}
	full := len(ids) == o.Limit
	if p.At > 0 && (skip == 0 || skip == len(ids) && full) {
		if o.again++; o.again > maxAgain {
			return 0, nil, fmt.Errorf("the list %s changes faster than it can be read: continue the import later", p.List)
		}
		return len(ids), &Place{List: p.List, Again: p.Again + 1}, nil
	}
	if skip < len(ids) && (full || offset+len(ids) < total) {
		next = &Place{List: p.List, At: offset + len(ids), Last: ids[len(ids)-1], Again: p.Again}
	}
	return skip, next, nil
}
