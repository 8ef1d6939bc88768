package search

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// mergeSegments merges the newest segments of a team until they are few.
func (x *Index) mergeSegments(ctx context.Context, teamID string) error {
	for ctx.Err() == nil {
		some, _, err := segmentsPage(ctx, x.db, teamID, page.Page{Limit: mergeWindow})
		if err != nil {
			return err
		}
		slices.Reverse(some)
		run := toMerge(some, dayOf(id.First(x.db.Now())))
		if len(run) == 0 {
			return nil
		}
		ok, err := x.merge(ctx, teamID, run)
		if err != nil {
			return fmt.Errorf("merge segments of the search index: %w", err)
		}
		if !ok { // another node changed them; a later call merges what is left
			return nil
		}
	}
	return ctx.Err()
}

// toMerge returns adjoining segments that should become one, or none. The segments are in the order of their ids. If
// their day is over, few segments are enough. Otherwise, they must be many of a similar size, so that an email is
// written only a few times.
func toMerge(some []segment, today int64) []segment {
	for first := range some {
		n, emails := 0, 0
		for i := first; i < len(some) && mergeable(some[first:i], &some[i], today); i++ {
			if emails += some[i].emails; emails > mergeMost {
				break
			}
			n++
		}
		few := mergeFew
		if dayOf(some[first].last) < today {
			few = 2
		}
		if n >= few {
			return some[first : first+n]
		}
	}
	return nil
}

// mergeable reports whether a segment can be merged with those before it.
func mergeable(before []segment, g *segment, today int64) bool {
	if g.state != segmentChecked || g.emails > mergeMost/2 {
		return false
	}
	if len(before) == 0 {
		return true
	}
	last := &before[len(before)-1]
	if neighbor(last.last, 1) != g.from || dayOf(last.last) != dayOf(g.last) {
		return false
	}
	return sizeClass(before[0].emails) == sizeClass(g.emails) || dayOf(g.last) < today
}

// sizeClass returns a number that segments of a similar size share.
func sizeClass(emails int) (class int) {
	for ; emails >= mergeFew; emails /= mergeFew {
		class++
	}
	return class
}

// merge replaces adjoining segments by one, and returns false if one of them changed meanwhile.
func (x *Index) merge(ctx context.Context, teamID string, old []segment) (ok bool, err error) {
	return x.replace(ctx, teamID, old, func() (rows []termindex.Row, emails int, err error) {
		parts := make([][]termindex.Row, len(old))
		for i, o := range old {
			if parts[i], err = allTerms(ctx, x.db.Reader, teamID, o); err != nil {
				return nil, 0, err
			}
			emails += o.emails
		}
		rows, err = termindex.Merge(parts)
		return rows, emails, err
	})
}
