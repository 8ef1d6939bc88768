package tlsreports

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const flushRows = 500 // of a transaction

// entries are the counts that are not stored yet.
type entries = dailyreports.Entries[row, policies]

// Flush adds the counts to the database. If it fails, it keeps the counts for the next call.
func (s *Service) Flush(ctx context.Context) error {
	return s.counts.Flush(func(pending entries, lost int) error {
		if lost > 0 {
			s.p.Log.Warn("TLS sessions were not counted, because too many counts wait for the database", "sessions", lost)
		}
		// All nodes write rows in the same order, so that they do not wait for each other in a circle.
		order := slices.SortedFunc(maps.Keys(pending), func(a, b dailyreports.DayDomain) int {
			return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Domain, b.Domain))
		})
		for len(order) > 0 {
			n, rows := 0, 0
			for n < len(order) && (n == 0 || rows+len(pending[order[n]].Rows) <= flushRows) {
				rows += len(pending[order[n]].Rows)
				n++
			}
			err := s.add(ctx, order[:n], pending)
			for _, at := range order[:n] {
				switch {
				case err == nil:
					delete(pending, at)
				case errors.Is(err, db.ErrUnknown):
					clear(pending[at].Rows) // they may be stored already; storing the policies again does no harm
				}
			}
			if err != nil {
				return err
			}
			order = order[n:]
		}
		return nil
	})
}
