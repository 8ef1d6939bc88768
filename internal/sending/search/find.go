package search

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// These are the times after which a search begins no further statement, with and without texts to search for.
const (
	searchTime = 80 * time.Millisecond
	filterTime = 40 * time.Millisecond
)

// Lateness is how much later the time in an email's id may be than the time at which the email was accepted.
const Lateness = time.Hour

// lastID is greater than the id of any email.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// List is a team's list of emails, newest first, in which [Find] searches for items of type T.
type List[T any] struct {
	DB     *db.DB
	TeamID string

	// All selects the whole list, and Some the items that meet the conditions on columns, including the time of the
	// criteria. Both texts end with a WHERE clause. If there are no conditions, they are the same.
	All, Some page.Select
	Scan      func(db.Row) (T, error)
	ID        func(*T) string

	// Select reports whether an item meets the other conditions. If it is nil, there are none.
	Select func(*T) bool

	// ByID returns those of the items with the given ids that Some selects. The ids are between lo and hi. If ByID is nil,
	// the list is not in the index.
	ByID func(ctx context.Context, ids []string, lo, hi string) (map[string]T, error)
}

// Found is the result of a search.
type Found[T any] struct {
	Items   []T // newest first
	HasMore bool

	// SearchedBackTo is set if the search ended before the page was full, because its time was over. All emails that are
	// newer were searched. For a page before a cursor, all emails that are older were searched. Next is the cursor from
	// which to continue in the same direction.
	SearchedBackTo time.Time
	Next           string
}

// Cursor returns the cursor after which the list continues, or "" if nothing follows. The parameter id is that of
// [List].
func (f *Found[T]) Cursor(id func(*T) string) string {
	if f.Next == "" && f.HasMore && len(f.Items) > 0 {
		return id(&f.Items[len(f.Items)-1])
	}
	return f.Next
}

// Find returns a page of the items of a list that meet the criteria and have the given labels, newest first. The page
// must have a limit. Labels that probably select few emails come first; they only matter to the index.
func Find[T any](ctx context.Context, list List[T], c *Criteria, labels []Label, p page.Page) (Found[T], error) {
	limit := searchTime
	if !c.hasTexts() {
		limit = filterTime
	}
	x := search[T]{List: list, up: p.Before != "", need: p.Most() + 1, lo: string(db.NoID), hi: lastID,
		end: time.Now().Add(limit)}
	if list.ByID != nil && c.id == "" {
		x.patterns = c.patterns(labels)
	}
	if !c.query.CreatedAfter.IsZero() {
		x.lo = max(x.lo, id.First(c.query.CreatedAfter))
	}
	if !c.query.CreatedBefore.IsZero() {
		x.hi = min(x.hi, id.First(c.query.CreatedBefore.Add(Lateness)))
	}
	if c.id != "" { // only this id is between its neighbors
		x.lo, x.hi = max(x.lo, neighbor(c.id, -1)), min(x.hi, neighbor(c.id, 1))
	}
	if p.After != "" {
		x.hi = min(x.hi, p.After)
	}
	x.lo = max(x.lo, p.Before)
	if err := x.run(ctx); err != nil {
		return Found[T]{}, fmt.Errorf("search the emails of team %s: %w", list.TeamID, err)
	}
	return x.found(), nil
}

// search is a search in progress. It looks at the emails with ids between lo and hi, both of which are excluded, and
// moves hi to each email that it has passed. A search for a page before a cursor goes up and moves lo instead.
type search[T any] struct {
	List[T]
	patterns []termindex.Pattern // empty if only the rows are searched
	up       bool
	need     int // one more than the limit of the page
	lo, hi   string
	end      time.Time
	all      []T  // in the order of the search
	partial  bool // the time was over

	segments []segment // the next segments in the order of the search
	listed   bool      // whether no segments follow
}

// found returns the result of a search.
func (x *search[T]) found() (f Found[T]) {
	f.Items = x.all
	if f.HasMore = x.partial || len(x.all) >= x.need; len(x.all) >= x.need {
		f.Items = x.all[:x.need-1]
	} else if x.partial {
		f.Next = x.hi
		if x.up {
			f.Next = x.lo
		}
		f.SearchedBackTo, _ = id.Time(f.Next)
	}
	if x.up {
		slices.Reverse(f.Items)
	}
	return f
}

// over reports whether the search ends now, because the page is full or the time is over.
func (x *search[T]) over() bool {
	if len(x.all) >= x.need {
		return true
	}
	x.partial = !time.Now().Before(x.end)
	return x.partial
}

// errReplaced means that a segment was replaced after its header was read.
var errReplaced = errors.New("a segment of the search index was replaced")

// replacedMost is how often a search reads the headers again because segments were replaced. After that, it reads the
// emails instead.
const replacedMost = 3

// run searches until the page is full, the time is over, or all emails are searched.
func (x *search[T]) run(ctx context.Context) error {
	if len(x.patterns) == 0 {
		return x.scan(ctx, x.lo, x.hi)
	}
	for try := 0; ; try++ {
		err := x.segmentsThenRows(ctx, try == replacedMost)
		if !errors.Is(err, errReplaced) {
			return err
		}
		x.segments, x.listed = nil, false
	}
}

// segmentsThenRows searches the segments in order, and reads the emails that no segment covers. If rowsOnly is true, it
// reads all emails.
func (x *search[T]) segmentsThenRows(ctx context.Context, rowsOnly bool) error {
	size, edge := 1, "" // the edge is the first id, or the last one, of the segment before
	for x.lo < x.hi && !x.over() {
		if err := x.list(ctx); err != nil {
			return err
		}
		if len(x.segments) == 0 || rowsOnly {
			return x.scan(ctx, x.lo, x.hi)
		}
		g := x.segments[0]
		if !x.adjoins(edge, &g) {
			if err := x.gap(ctx, &g); err != nil || len(x.all) >= x.need || x.partial {
				return err
			}
		}
		if g.state == segmentBroken {
			if err := x.scan(ctx, max(x.lo, neighbor(g.from, -1)), min(x.hi, neighbor(g.last, 1))); err != nil ||
				len(x.all) >= x.need || x.partial {
				return err
			}
			x.segments, edge = x.segments[1:], x.far(&g)
			continue
		}
		n := 1
		for n < min(size, len(x.segments)) && x.segments[n].state != segmentBroken &&
			x.adjoins(x.far(&x.segments[n-1]), &x.segments[n]) {
			n++
		}
		rows, err := x.group(ctx, x.segments[:n])
		if err != nil {
			return err
		}
		edge = x.far(&x.segments[n-1])
		x.segments = x.segments[n:]
		switch { // statements of a few milliseconds
		case rows < 200:
			size = min(4*n, 64)
		case rows > 800:
			size = max(n/2, 1)
		}
	}
	return nil
}

// near returns the id of a segment at which the search enters it, and far the id at which the search leaves it.
func (x *search[T]) near(g *segment) string {
	if x.up {
		return g.from
	}
	return g.last
}

func (x *search[T]) far(g *segment) string {
	if x.up {
		return g.last
	}
	return g.from
}

// adjoins reports whether there can be no email between the edge of a segment and the next segment.
func (x *search[T]) adjoins(edge string, next *segment) bool {
	if edge == "" {
		return false
	}
	step := -1
	if x.up {
		step = 1
	}
	return neighbor(edge, step) == x.near(next)
}

// gap reads the emails before the next segment.
func (x *search[T]) gap(ctx context.Context, next *segment) error {
	if x.up {
		return x.scan(ctx, x.lo, min(x.hi, next.from))
	}
	return x.scan(ctx, max(x.lo, next.last), x.hi)
}

// list reads the headers of the next segments that have emails between lo and hi.
func (x *search[T]) list(ctx context.Context) error {
	const most = 64
	if len(x.segments) > 0 || x.listed {
		return nil
	}
	p := page.Page{Limit: most}
	if x.up {
		p.Before = x.lo
	} else if p.After = neighbor(x.hi, -1); x.hi != lastID {
		// The segment in which the search begins may end after hi.
		some, _, err := segmentsPage(ctx, x.DB, x.TeamID, page.Page{Limit: 1, Before: p.After})
		if err != nil {
			return err
		}
		if len(some) > 0 && some[0].from < x.hi {
			x.segments = some
		}
		p.After = x.hi
	} else {
		p.After = ""
	}
	some, more, err := segmentsPage(ctx, x.DB, x.TeamID, p)
	if err != nil {
		return err
	}
	if x.up {
		slices.Reverse(some)
	}
	x.listed = !more
	for _, g := range some {
		if g.last <= x.lo || g.from >= x.hi {
			x.listed = true
			break
		}
		x.segments = append(x.segments, g)
	}
	return nil
}

// pass records that all emails up to an id are searched.
func (x *search[T]) pass(emailID string) {
	if x.up {
		x.lo = max(x.lo, emailID)
	} else {
		x.hi = min(x.hi, emailID)
	}
}

// scanRows and maxScanRows are the numbers of emails that the first step and a later step of a scan read at most. A
// row that is only on a disk takes some 0.2 ms, even if those before it were in memory.
const (
	scanRows    = 100
	maxScanRows = 500
)

// scan reads the emails between two ids in the order of the search. It records the ids that it has passed.
func (x *search[T]) scan(ctx context.Context, lo, hi string) error {
	if lo >= hi {
		return nil
	}
	all, some, p := x.All, x.Some, page.Page{After: hi}
	bound, end := lo, ">"
	if x.up {
		bound, end, p = hi, "<", page.Page{Before: lo}
	}
	switch {
	case x.up && hi == lastID: // an email may have this id
		bound, end = string(db.NoID), ">"
	case hi == lastID:
		p.After = ""
	}
	for _, s := range []*page.Select{&all, &some} {
		s.Args = append(slices.Clone(s.Args), db.ID(bound))
		s.Text += fmt.Sprintf(" AND %s %s $%d", s.ID, end, len(s.Args))
	}
	for rows := scanRows; ; {
		began, limit := time.Now(), rows
		if x.Select == nil {
			limit = min(rows, x.need-len(x.all))
		}
		found, next, err := page.Step(ctx, x.DB.Reader, all, some, p, rows, limit, x.Scan,
			func(item T) string { return x.ID(&item) })
		if err != nil {
			return err
		}
		if x.up {
			slices.Reverse(found)
		}
		for i := range found {
			if x.selects(&found[i]) {
				x.all = append(x.all, found[i])
			}
		}
		if next == "" {
			if x.up {
				x.pass(neighbor(hi, -1))
			} else {
				x.pass(neighbor(lo, 1))
			}
			return nil
		}
		x.pass(next)
		if x.over() {
			return nil
		}
		rows = nextRows(rows, time.Since(began), time.Until(x.end))
		if p.After = next; x.up {
			p = page.Page{Before: next}
		}
	}
}

// nextRows returns how many rows the next step of a scan reads, if the last step read a number of rows in a time. It
// reads twice as many if they take no more than the rest of the time of the search. The rows may be anywhere on a disk,
// where 2,000 of them take most of a second.
func nextRows(rows int, took, rest time.Duration) int {
	most := float64(rows) * float64(rest) / float64(max(took, time.Microsecond))
	return max(scanRows, int(min(most, float64(2*rows), maxScanRows)))
}

// selects reports whether an item that the list's condition on columns selects meets the other conditions.
func (x *search[T]) selects(item *T) bool { return x.Select == nil || x.Select(item) }

// neighbor returns the id before or after another one.
func neighbor(text string, step int) string {
	u, err := uuid.Parse(text)
	if err != nil {
		return text
	}
	for i := len(u) - 1; i >= 0; i-- {
		u[i] += byte(step)
		if step > 0 && u[i] != 0 || step < 0 && u[i] != 0xff {
			break
		}
	}
	return u.String()
}
