package dmarcreports

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const flushRows = 500 // of a transaction

// count is a number of messages that is not stored yet.
type count struct {
	dayDomain
	row      string
	messages int64
}

// Flush adds the counts to the database. If it fails, it keeps the counts for the next call.
func (s *Service) Flush(ctx context.Context) error {
	pending, days, lost := s.counts.take()
	if lost > 0 {
		s.p.Log.Warn("messages are missing in DMARC reports, because too many counts wait for the database", "messages",
			lost)
	}
	var all []count
	for at, e := range pending {
		for row, n := range e.messages {
			all = append(all, count{at, row, n})
		}
	}
	// All nodes write rows in the same order, which prevents deadlocks.
	slices.SortFunc(all, func(a, b count) int {
		return cmp.Or(cmp.Compare(a.day, b.day), cmp.Compare(a.domain, b.domain), cmp.Compare(a.row, b.row))
	})
	for len(all) > 0 || len(days) > 0 {
		batch := all[:min(len(all), flushRows)]
		err := s.add(ctx, batch, pending, days)
		if err == nil || errors.Is(err, db.ErrUnknown) { // after an unknown outcome, the counts may be stored already
			days = nil
			for _, c := range batch {
				delete(pending[c.dayDomain].messages, c.row)
			}
		}
		if err != nil {
			s.counts.giveBack(pending, days)
			return err
		}
		all = all[len(batch):]
	}
	return nil
}

// isLate reports whether the counts of a day cannot be stored any more, because its report may have been sent.
func isLate(from int64, now time.Time) bool { return now.After(db.Time(from).Add(day + lateFor)) }
