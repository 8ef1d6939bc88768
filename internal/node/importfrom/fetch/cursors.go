package fetch

import (
	"errors"
	"fmt"
)

// MaxPages is the maximum number of pages of a list that a source holds in memory.
const MaxPages = 1000

// ErrRepeated is a bug of a source, or of the product behind it.
var ErrRepeated = errors.New("the source returned the same page again")

// Cursors detects lists that never end. It remembers one cursor, and takes another one after 1, 2, 4, 8 … pages, so that
// it finds each circle with little memory.
type Cursors struct {
	Most int // maximum number of further pages; 0 means no limit

	saved string
	pages int
	until int // number of pages at which the saved cursor is replaced
}

// Next notes the cursor of the next page. It returns an error if the pages repeat, or if there are too many. The cursor
// "" ends a list.
func (c *Cursors) Next(cursor string) error {
	switch {
	case cursor == "":
		return nil
	case c.pages > 0 && cursor == c.saved:
		return ErrRepeated
	case c.Most > 0 && c.pages == c.Most:
		return fmt.Errorf("a list of the source has more than %d pages", c.Most)
	}
	if c.pages++; c.pages > c.until {
		c.saved, c.until = cursor, 2*c.pages
	}
	return nil
}
