package emails

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/termindex"
)

// mergeSegments merges the newest segments of a team until they are few.
func (s *Service) mergeSegments(ctx context.Context, teamID string) error {
	for ctx.Err() == nil {
		some, _, err := segmentsPage(ctx, s.DB, teamID, page.Page{Limit: mergeWindow})
		if err != nil {
			return err
		}
		slices.Reverse(some)
		run := toMerge(some, dayOf(id.First(s.DB.Now())))
		if len(run) == 0 {
			return nil
		}
		if err := s.merge(ctx, teamID, run); err != nil {
			return fmt.Errorf("merge segments of the search index: %w", err)
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

func (s *Service) merge(ctx context.Context, teamID string, old []segment) error {
	parts := make([][]termindex.Row, len(old))
	g := segment{last: old[len(old)-1].last, from: old[0].from}
	for i, o := range old {
		var err error
		if parts[i], err = allTerms(ctx, s.DB.Reader, teamID, o); err != nil {
			return err
		}
		g.emails += o.emails
	}
	rows, err := termindex.Merge(parts)
	if err != nil {
		return err
	}
	return s.replace(ctx, teamID, old, g, rows)
}
