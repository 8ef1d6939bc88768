package page

// Chunks reads an unlimited page in chunks and in list order, so that only one chunk at a time is in memory. To read a
// chunk, Chunks calls a function that reads pages with a limit, such as a package's List function. Between chunks,
// Chunks holds no connection or transaction. Chunks omits rows that are inserted beyond the page's end during the
// iteration, and rows that are deleted before they are read.
//
// If a page lies before a cursor, the page's first item is not known in advance, so Chunks reads such a page twice,
// first backwards.
type Chunks[T any] struct {
	page   Page
	size   int
	read   func(Page) (items []T, more bool, err error)
	id     func(T) string
	before string // the cursor at which the page ends, or ""
	left   int    // how many more items the page may have
	begun  bool
	last   bool
	more   bool

	newestFirst bool // whether the list is newest first; set only for a page before a cursor
}

// NewChunks returns the chunks of a page, with at most size items each. The page has at most Most items. The id
// function returns an item's cursor.
func NewChunks[T any](p Page, size int, read func(Page) (items []T, more bool, err error),
	id func(T) string) *Chunks[T] {
	return &Chunks[T]{page: p, size: size, read: read, id: id, before: p.Before, left: Most}
}

// Last reports whether Next has returned all chunks.
func (c *Chunks[T]) Last() bool { return c.last }

// More reports, after the last chunk, whether more items exist beyond the page.
func (c *Chunks[T]) More() bool { return c.last && c.more }

// Next returns the next chunk. Next must not be called after the last chunk or after an error.
func (c *Chunks[T]) Next() ([]T, error) {
	if !c.begun && c.before != "" {
		c.begun = true
		return c.farthest()
	}
	c.begun = true
	p := c.page
	p.Limit = min(c.size, c.left)
	items, more, err := c.read(p)
	if err != nil {
		return nil, err
	}
	c.left -= len(items)
	c.last = !more || c.left == 0
	if c.before == "" {
		c.more = more
	}
	c.goOnAfter(items)
	return c.withinPage(items), nil
}

// goOnAfter makes the next chunk begin after the given items. If items is empty because the rows were deleted in the
// meantime, the next chunk begins at the same cursor.
func (c *Chunks[T]) goOnAfter(items []T) {
	if len(items) > 0 {
		c.page = Page{After: c.id(items[len(items)-1])}
	}
}

// farthest reads backwards from the cursor to the beginning of the page, and returns the page's first chunk.
func (c *Chunks[T]) farthest() (far []T, err error) {
	p, read := c.page, 0
	for left := Most; ; {
		p.Limit = min(c.size, left)
		items, more, err := c.read(p)
		if err != nil {
			return nil, err
		}
		if len(items) > 0 {
			far, p.Before = items, c.id(items[0])
			left, read = left-len(items), read+1
		}
		if !more || left == 0 {
			c.more, c.last = more, read <= 1
			break
		}
	}
	c.newestFirst = len(far) > 0 && c.id(far[0]) > c.before
	c.goOnAfter(far)
	return far, nil
}

// withinPage removes the items that are not before the page's end cursor.
func (c *Chunks[T]) withinPage(items []T) []T {
	n := len(items)
	for n > 0 && c.before != "" {
		last := c.id(items[n-1])
		if last != c.before && (last > c.before) == c.newestFirst {
			break
		}
		n--
		c.last = true
	}
	return items[:n]
}
