package dailyreports

import (
	"context"
	"sync"
	"time"
)

// Entry has the counts for a report that are not stored yet: numbers by row, and facts about the report.
type Entry[R comparable, A any] struct {
	Rows  map[R]int64
	About A
}

// Entries are entries by report.
type Entries[R comparable, A any] map[DayDomain]*Entry[R, A]

// Counts holds counts in memory until they are stored. The number of its rows is limited, also while rows are being
// stored. Counts is safe for concurrent use.
type Counts[R comparable, A any] struct {
	limit int
	merge func(newer, older A) A
	full  chan struct{} // has an element if the counts should be stored soon

	flushing sync.Mutex // held during Flush

	mu      sync.Mutex
	pending Entries[R, A]
	size    int // number of rows in pending
	taken   int // number of rows that Flush is storing
	lost    int // how often a new row exceeded the limit
}

// NewCounts returns counts with a limit on the number of rows. If an entry could not be stored, and the report has been
// counted again meanwhile, merge returns the facts about the report.
func NewCounts[R comparable, A any](limit int, merge func(newer, older A) A) *Counts[R, A] {
	return &Counts[R, A]{limit: limit, merge: merge, full: make(chan struct{}, 1), pending: Entries[R, A]{}}
}

// Add adds 1 to a row and calls change with the facts about the report. If the row is new and exceeds the limit, Add
// only counts the loss.
func (c *Counts[R, A]) Add(at DayDomain, row R, change func(*A)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.pending[at]
	if e == nil || e.Rows[row] == 0 {
		if c.size+c.taken >= c.limit {
			c.lost++
			return
		}
		if c.size++; c.size == c.limit/2 {
			select {
			case c.full <- struct{}{}:
			default:
			}
		}
	}
	if e == nil {
		e = &Entry[R, A]{Rows: map[R]int64{}}
		c.pending[at] = e
	}
	e.Rows[row]++
	change(&e.About)
}

// Flush calls store with all entries, and with the number of calls of Add that were lost since the last Flush. The
// function store deletes the rows or entries that it has stored. If it fails, the others are kept for the next call.
func (c *Counts[R, A]) Flush(store func(all Entries[R, A], lost int) error) error {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.mu.Lock()
	all, lost := c.pending, c.lost
	c.pending, c.taken, c.size, c.lost = Entries[R, A]{}, c.size, 0, 0
	c.mu.Unlock()
	err := store(all, lost)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.taken = 0; err != nil {
		c.giveBack(all)
	}
	return err
}

// giveBack adds entries that were not stored. The caller must hold c.mu.
func (c *Counts[R, A]) giveBack(all Entries[R, A]) {
	for at, old := range all {
		e := c.pending[at]
		if e == nil {
			c.pending[at], c.size = old, c.size+len(old.Rows)
			continue
		}
		e.About = c.merge(e.About, old.About)
		for row, n := range old.Rows {
			if e.Rows[row] == 0 {
				c.size++
			}
			e.Rows[row] += n
		}
	}
}

// Run calls flush each minute, and earlier if many counts wait, until ctx ends. It calls failed with the errors of
// flush.
func (c *Counts[R, A]) Run(ctx context.Context, flush func(context.Context) error, failed func(error)) error {
	tick := time.NewTicker(flushTime)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		case <-c.full:
		}
		if err := flush(ctx); err != nil && ctx.Err() == nil {
			failed(err)
		}
	}
}
