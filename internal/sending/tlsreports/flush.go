package tlsreports

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const flushRows = 500 // of a transaction

// Flush adds the counts to the database. If it fails, it keeps the counts for the next call.
func (s *Service) Flush(ctx context.Context) error {
	pending, lost := s.counts.take()
	if lost > 0 {
		s.p.Log.Warn("TLS sessions were not counted, because too many counts wait for the database", "sessions", lost)
	}
	// All nodes write rows in the same order, so that they do not wait for each other in a circle.
	order := slices.SortedFunc(maps.Keys(pending), func(a, b dayDomain) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.domain, b.domain))
	})
	for len(order) > 0 {
		n, rows := 0, 0
		for n < len(order) && (n == 0 || rows+len(pending[order[n]].sessions) <= flushRows) {
			rows += len(pending[order[n]].sessions)
			n++
		}
		err := s.add(ctx, order[:n], pending)
		if err != nil && !errors.Is(err, db.ErrUnknown) {
			s.counts.giveBack(pending)
			return err
		}
		for _, at := range order[:n] {
			if err == nil {
				delete(pending, at)
			} else {
				clear(pending[at].sessions) // they may be stored already; storing the policies again does no harm
			}
		}
		if err != nil {
			s.counts.giveBack(pending)
			return err
		}
		order = order[n:]
	}
	return nil
}

// isLate reports whether the counts of a day cannot be stored any more, because its report may have been sent.
func isLate(from int64, now time.Time) bool { return now.After(db.Time(from).Add(day + lateFor)) }
