package emails

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/postrider/postrider/internal/accounts/teams"
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

// Found is the result of a search.
type Found struct {
	Emails  []Email // newest first, without bodies
	HasMore bool

	// SearchedBackTo is set if the search ended before the page was full, because its time was over. All emails that are
	// newer were searched. For a page before a cursor, all emails that are older were searched. Next is the cursor from
	// which to continue in the same direction.
	SearchedBackTo time.Time
	Next           string
}

// Search returns a page of the emails that a filter selects, newest first. The page must have a limit. If a value of
// the filter is invalid, Search returns an Invalid fault that names the parameter of the API.
func (s *Service) Search(ctx context.Context, by teams.Actor, f Filter, p page.Page) (Found, error) {
	if err := by.Require(teams.EmailsRead); err != nil {
		return Found{}, err
	}
	c, err := f.check()
	if err != nil {
		return Found{}, err
	}
	limit := searchTime
	if !c.searches() {
		limit = filterTime
	}
	x := search{Service: s, criteria: c, patterns: c.patterns(), teamID: by.TeamID, up: p.Before != "", need: p.Most() + 1,
		lo: string(db.NoID), hi: lastID, end: time.Now().Add(limit)}
	if !f.CreatedAfter.IsZero() {
		x.lo = max(x.lo, id.First(f.CreatedAfter))
	}
	if !f.CreatedBefore.IsZero() {
		x.hi = min(x.hi, id.First(f.CreatedBefore.Add(lateness)))
	}
	if p.After != "" {
		x.hi = min(x.hi, p.After)
	}
	x.lo = max(x.lo, p.Before)
	if err := x.run(ctx); err != nil {
		return Found{}, fmt.Errorf("search the emails of team %s: %w", by.TeamID, err)
	}
	return x.found(), nil
}

// search is a search in progress. It looks at the emails with ids between lo and hi, both of which are excluded, and
// moves hi to each email that it has passed. A search for a page before a cursor goes up and moves lo instead.
type search struct {
	*Service
	criteria
	patterns []termindex.Pattern
	teamID   string
	up       bool
	need     int // one more than the limit of the page
	lo, hi   string
	end      time.Time
	all      []Email // in the order of the search
	partial  bool    // the time was over

	segments []segment // the next segments in the order of the search
	listed   bool      // whether no segments follow
}

// found returns the result of a search.
func (x *search) found() (f Found) {
	f.Emails = x.all
	if f.HasMore = x.partial || len(x.all) >= x.need; len(x.all) >= x.need {
		f.Emails = x.all[:x.need-1]
	} else if x.partial {
		f.Next = x.hi
		if x.up {
			f.Next = x.lo
		}
		f.SearchedBackTo, _ = id.Time(f.Next)
	}
	if x.up {
		slices.Reverse(f.Emails)
	}
	return f
}

// over reports whether the search ends now, because the page is full or the time is over.
func (x *search) over() bool {
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
func (x *search) run(ctx context.Context) error {
	if len(x.patterns) == 0 || x.id != "" {
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
func (x *search) segmentsThenRows(ctx context.Context, rowsOnly bool) error {
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
func (x *search) near(g *segment) string {
	if x.up {
		return g.from
	}
	return g.last
}

func (x *search) far(g *segment) string {
	if x.up {
		return g.last
	}
	return g.from
}

// adjoins reports whether there can be no email between the edge of a segment and the next segment.
func (x *search) adjoins(edge string, next *segment) bool {
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
func (x *search) gap(ctx context.Context, next *segment) error {
	if x.up {
		return x.scan(ctx, x.lo, min(x.hi, next.from))
	}
	return x.scan(ctx, max(x.lo, next.last), x.hi)
}

// list reads the headers of the next segments that have emails between lo and hi.
func (x *search) list(ctx context.Context) error {
	const most = 64
	if len(x.segments) > 0 || x.listed {
		return nil
	}
	p := page.Page{Limit: most}
	if x.up {
		p.Before = x.lo
	} else if p.After = neighbor(x.hi, -1); x.hi != lastID {
		// The segment in which the search begins may end after hi.
		some, _, err := segmentsPage(ctx, x.DB, x.teamID, page.Page{Limit: 1, Before: p.After})
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
	some, more, err := segmentsPage(ctx, x.DB, x.teamID, p)
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
func (x *search) pass(emailID string) {
	if x.up {
		x.lo = max(x.lo, emailID)
	} else {
		x.hi = min(x.hi, emailID)
	}
}

// scanRows is the number of emails that the first step of a scan reads.
const scanRows = 100

// scan reads the emails between two ids in the order of the search. It records the ids that it has passed.
func (x *search) scan(ctx context.Context, lo, hi string) error {
	base := `SELECT ` + emailColumns + ` FROM emails e WHERE e.team_id = $1`
	if x.up && hi != lastID {
		base += ` AND e.id < $2`
	} else {
		base += ` AND e.id > $2`
	}
	args := []any{db.ID(x.teamID), db.ID(lo)}
	p := page.Page{After: hi}
	if x.up {
		args[1], p = db.ID(hi), page.Page{Before: lo}
		if hi == lastID {
			args[1] = db.NoID
		}
	} else if hi == lastID {
		p.After = ""
	}
	if lo >= hi {
		return nil
	}
	all := page.Select{Text: base, ID: "e.id", InSpans: !x.DB.Alone(), Args: args}
	some := all
	var where string
	where, some.Args = x.where(slices.Clone(args), func(text string) any { return db.ID(text) })
	some.Text += where
	for rows := scanRows; ; rows = min(2*rows, 2000) {
		limit := rows
		if x.exact() {
			limit = min(rows, x.need-len(x.all))
		}
		found, next, err := page.Step(ctx, x.DB.Reader, all, some, p, rows, limit, scanEmail,
			func(e Email) string { return e.ID })
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
		if p.After = next; x.up {
			p = page.Page{Before: next}
		}
	}
}

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
