package dmarcreports

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

const flushRows = 500 // of a transaction

// count is a number of messages that is not stored yet.
type count struct {
	dailyreports.DayDomain
	row      string
	messages int64
}

// Flush adds the counts to the database. If it fails, it keeps the counts for the next call.
func (s *Service) Flush(ctx context.Context) error {
	return s.counts.Flush(func(pending dailyreports.Entries[string, string], lost int) error {
		if lost > 0 {
			s.p.Log.Warn("messages are missing in DMARC reports, because too many counts wait for the database", "messages",
				lost)
		}
		days := s.counts.takeTotals()
		var all []count
		for at, e := range pending {
			for row, n := range e.Rows {
				all = append(all, count{at, row, n})
			}
		}
		// All nodes write rows in the same order, which prevents deadlocks.
		slices.SortFunc(all, func(a, b count) int {
			return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.row, b.row))
		})
		for len(all) > 0 || len(days) > 0 {
			batch := all[:min(len(all), flushRows)]
			err := s.add(ctx, batch, pending, days)
			if err == nil || errors.Is(err, db.ErrUnknown) { // after an unknown outcome, the counts may be stored already
				days = nil
				for _, c := range batch {
					if rows := pending[c.DayDomain].Rows; len(rows) > 1 {
						delete(rows, c.row)
					} else {
						delete(pending, c.DayDomain)
					}
				}
			}
			if err != nil {
				s.counts.addTotals(days)
				return err
			}
			all = all[len(batch):]
		}
		return nil
	})
}
