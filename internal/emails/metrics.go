package emails

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/db"
)

// MetricsQuery asks for counts of events in a span of time (API reference section 8.9).
type MetricsQuery struct {
	From, To     time.Time
	DomainIDs    []string // empty: all
	EmailIDs     []string
	BroadcastIDs []string
	ByPeriod     func(time.Time) string // names the period that a time is in; nil when not broken down by it
	ByDomain     bool
	ByEmail      bool
	ByBroadcast  bool
}

// Count is how often an event occurred in one row of the breakdown.
type Count struct {
	Period, DomainID, DomainName, EmailID, BroadcastID string // empty where not broken down by it

	Type   string // an event's type without "email.", or unique_opened, unique_clicked
	Detail string // a bounce's type
	N      int
}

// slot is the finest period counted in SQL: every zone's hours begin at a whole number of these since 1970.
const slot = 15 * time.Minute

// Metrics counts events. Opens and clicks are counted as they come and, as unique_*, once for each recipient.
func (s *Service) Metrics(ctx context.Context, teamID string, q MetricsQuery) ([]Count, error) {
	var all []Count
	for _, unique := range []bool{false, true} {
		counts, err := s.count(ctx, teamID, q, unique)
		if err != nil {
			return nil, fmt.Errorf("count events: %w", err)
		}
		all = append(all, counts...)
	}
	return all, nil
}

// count runs one of the two queries: how many events there were, or the different recipients who opened or clicked.
func (s *Service) count(ctx context.Context, teamID string, q MetricsQuery, unique bool) ([]Count, error) {
	columns := [5]string{"CAST(0 AS BIGINT)", "''", "''", "''", "''"}
	if q.ByPeriod != nil {
		columns[0] = fmt.Sprintf("e.created_at / %d", slot.Microseconds())
	}
	if q.ByDomain {
		columns[1], columns[2] = "e.domain_id", "COALESCE(d.name, '')"
	}
	if q.ByEmail {
		columns[3] = "e.email_id"
	}
	if q.ByBroadcast {
		columns[4] = "e.broadcast_id"
	}
	what, where := "e.type, e.detail", ""
	if unique {
		// One row for each recipient: the caller counts them in its own periods.
		what, where = "'unique_' || e.type, e.email_id || ' ' || e.recipient", " AND e.type IN ('opened', 'clicked')"
	}
	args := []any{teamID, q.From.UnixMicro(), q.To.UnixMicro()}
	for _, f := range []struct {
		column string
		ids    []string
	}{{"e.domain_id", q.DomainIDs}, {"e.email_id", q.EmailIDs}, {"e.broadcast_id", q.BroadcastIDs}} {
		if len(f.ids) > 0 {
			var in string
			in, args = db.In(args, f.ids)
			where += " AND " + f.column + " IN " + in
		}
	}
	rows, err := s.d.Query(ctx, fmt.Sprintf(`SELECT %s, %s, %s, %s, %s, %s, COUNT(*) FROM email_events e
		LEFT JOIN domains d ON d.id = e.domain_id AND d.team_id = e.team_id
		WHERE e.team_id = $1 AND e.created_at >= $2 AND e.created_at < $3%s GROUP BY 1, 2, 3, 4, 5, 6, 7`,
		columns[0], columns[1], columns[2], columns[3], columns[4], what, where), args...)
	seen := map[Count]bool{}
	all, err := db.Collect(rows, err, func(r db.Row) (c Count, err error) {
		var at int64
		err = r.Scan(&at, &c.DomainID, &c.DomainName, &c.EmailID, &c.BroadcastID, &c.Type, &c.Detail, &c.N)
		if q.ByPeriod != nil {
			c.Period = q.ByPeriod(time.UnixMicro(at * slot.Microseconds()))
		}
		return c, err
	})
	if !unique {
		return all, err
	}
	kept := all[:0]
	for _, c := range all {
		c.N = 1
		if !seen[c] { // Detail still tells whose it is.
			seen[c] = true
			c.Detail = ""
			kept = append(kept, c)
		}
	}
	return kept, err
}
