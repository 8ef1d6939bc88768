package page

// Chunks reads a page that has no limit piece by piece, in the order of its list, so that one piece at a time is in
// memory. It reads pages with a limit by a function such as the lists of resources have, and holds no connection and no
// transaction between two of them. Rows that are inserted beyond the page's end meanwhile are left out, and those that
// are deleted before they are reached too.
//
// A page before a cursor begins at its far end, which is not known: it is read twice, first backwards.
type Chunks[T any] struct {
	page   Page
	size   int
	read   func(Page) (items []T, more bool, err error)
	id     func(T) string
	before string // the cursor at which the page ends; "" if it ends elsewhere
	left   int    // items that the page may have after those that were read
	begun  bool
	last   bool
	more   bool

	newestFirst bool // the order of the list, for a page before a cursor
}

// NewChunks returns the chunks of a page, which have at most size items. The page has at most Most items. id returns
// the cursor of an item.
func NewChunks[T any](p Page, size int, read func(Page) (items []T, more bool, err error),
	id func(T) string) *Chunks[T] {
	return &Chunks[T]{page: p, size: size, read: read, id: id, before: p.Before, left: Most}
}

// Last reports whether Next has returned all chunks.
func (c *Chunks[T]) Last() bool { return c.last }

// More reports, after the last chunk, whether there are more items beyond the page.
func (c *Chunks[T]) More() bool { return c.last && c.more }

// Next returns the next chunk. It must not be called after the last one, nor after an error.
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

// goOnAfter has the next chunk begin after some items. If there are none although there are more, they were deleted
// while they were read, and what comes after them is found in their place.
func (c *Chunks[T]) goOnAfter(items []T) {
	if len(items) > 0 {
		c.page = Page{After: c.id(items[len(items)-1])}
	}
}

// farthest goes back from the cursor to where the page begins, and returns its first chunk.
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

// withinPage leaves out what is not before the cursor at which the page ends.
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
