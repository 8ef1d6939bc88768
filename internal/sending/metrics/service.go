package metrics

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

// These are the maximum numbers of rows that the result of a query is computed from: rowsMax for a query that reads
// events by email, and breakdownMax for others.
const (
	rowsMax      = 50_000
	breakdownMax = 200_000
)

// Service counts events.
type Service struct{ d *db.DB }

// New returns the metrics service. Register the Service as a listener of the event recorder.
func New(d *db.DB) *Service { return &Service{d} }

// Now returns the current time of the clock that events use.
func (s *Service) Now() time.Time { return s.d.Now() }

// Recorded inserts a late entry for each event that happened so long ago that RollUp may already have counted the
// events of that time. The recorder calls Recorded for every event. A received email is counted at the time of the
// transaction that stores it, so it is never late.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	for i := range all {
		e := &all[i]
		if e.EmailID == "" || !e.At.Before(tx.Now().Add(-lateness)) {
			continue
		}
		if e.At.Before(tx.Now().Add(-finality)) {
			if final, err := isFinal(ctx, tx.Reader, e.TeamID, down(e.At.UnixMicro())); err != nil {
				return fmt.Errorf("read whether an old event is of a final count: %w", err)
			} else if final {
				addEvent(ctx, tx, e.EmailID, e.ID)
				continue
			}
		}
		switch e.Type {
		case events.EmailQueued, events.EmailScheduled, events.EmailCanceled:
		case events.EmailOpened, events.EmailClicked:
			insertLate(ctx, tx, e.TeamID, late{id.New(), e.EmailID, e.At.UnixMicro()})
		default:
			insertLate(ctx, tx, e.TeamID, late{id.New(), "", e.At.UnixMicro()})
		}
	}
	return nil
}

// Count counts a team's events for a query. If a breakdown has more than q.MaxRows rows, Count returns an Invalid fault
// for the field dimensions.
func (s *Service) Count(ctx context.Context, teamID string, q Query) ([]Count, error) {
	g := groups{domain: q.ByDomain, email: q.ByEmail, broadcast: q.ByBroadcast}
	if q.ByPeriod != nil {
		g.cells = cellsOf(q.PeriodsOf, q.Zone, q.From, q.To)
	}
	f := filters{q.DomainIDs, q.EmailIDs, q.BroadcastIDs, q.Types}
	all := span{q.From.UnixMicro(), q.To.UnixMicro()}
	var rows []row
	var err error
	if q.ByEmail || len(q.EmailIDs) > 0 {
		most := cmp.Or(q.MaxRows, rowsMax)
		if rows, err = countEvents(ctx, s.d.Reader, teamID, all, g, f, most+1); len(rows) > most {
			return nil, fault.Invalidf("dimensions",
				"The breakdown by email has more than %d rows. Ask for a shorter span, or name emails with `email_id`.", most)
		}
	} else {
		most := cmp.Or(q.MaxRows, breakdownMax)
		if rows, err = s.combine(ctx, teamID, all, g, f, most+1); len(rows) > most {
			return nil, fault.Invalidf("dimensions",
				"The breakdown has more than %d rows. Ask for a shorter span, longer periods or fewer dimensions.", most)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("count events: %w", err)
	}
	return s.toCounts(ctx, teamID, q, rows)
}

// combineTries is the maximum number of times that a query reads the counters if they change while it runs. Counters
// change once a minute per team.
const combineTries = 5

// combine adds up the counters and the events that are not yet in the counters. It returns at most limit rows.
func (s *Service) combine(ctx context.Context, teamID string, all span, g groups, f filters,
	limit int) (rows []row, err error) {
	before, err := getState(ctx, s.d.Reader, teamID)
	for try := 1; err == nil; try++ {
		if rows, err = s.read(ctx, teamID, all, before, g, f, limit); err != nil {
			break
		}
		var after state
		if after, err = getState(ctx, s.d.Reader, teamID); err == nil && (after == before || try == combineTries) {
			return rows, nil
		}
		before = after
	}
	return nil, err
}

func (s *Service) read(ctx context.Context, teamID string, all span, at state, g groups, f filters,
	limit int) ([]row, error) {
	dirty, err := dirtySlots(ctx, s.d.Reader, teamID, at.until)
	if err != nil {
		return nil, err
	}
	low, high, live := split(all, at.until, at.final, dirty)
	var without []int64
	for _, d := range dirty {
		if d >= low && d < high {
			without = append(without, d)
		}
	}
	if len(without) > dirtyMax {
		low, high, live = split(all, at.final*slot.Microseconds(), at.final, nil)
		without = nil
	}
	rows, err := sumCounters(ctx, s.d.Reader, teamID, low, high, without, g, f, limit)
	for _, l := range live {
		if err != nil || len(rows) >= limit {
			return rows, err
		}
		var more []row
		more, err = countEvents(ctx, s.d.Reader, teamID, l, g, f, limit-len(rows))
		rows = append(rows, more...)
	}
	return rows, err
}

// dirtyMax is the maximum number of dirty slots that are recounted individually. With more than dirtyMax dirty slots,
// counting all events is equally fast.
const dirtyMax = 300

// names returns the names in a table of the ids that rows have.
func (s *Service) names(ctx context.Context, table, teamID string, rows []row,
	idOf func(*row) string) (map[string]string,
	error) {
	seen := map[string]bool{"": true}
	var ids []string
	for i := range rows {
		if of := idOf(&rows[i]); !seen[of] {
			seen[of] = true
			ids = append(ids, of)
		}
	}
	names, err := namesOf(ctx, s.d.Reader, table, teamID, ids)
	if err != nil {
		return nil, fmt.Errorf("read the names of %s: %w", table, err)
	}
	return names, nil
}

// toCounts adds the names of periods, domains and broadcasts to rows, and merges rows with the same names.
func (s *Service) toCounts(ctx context.Context, teamID string, q Query, rows []row) ([]Count, error) {
	var domains, broadcasts map[string]string
	var err error
	if q.ByDomain {
		domains, err = s.names(ctx, "domains", teamID, rows, func(r *row) string { return r.domain })
	}
	if q.ByBroadcast && err == nil {
		broadcasts, err = s.names(ctx, "broadcasts", teamID, rows, func(r *row) string { return r.broadcast })
	}
	if err != nil {
		return nil, err
	}
	periods := map[int64]string{}
	index := map[Count]int{}
	var out []Count
	for _, r := range rows {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		c := Count{DomainID: r.domain, DomainName: domains[r.domain], EmailID: r.email, BroadcastID: r.broadcast,
			BroadcastName: broadcasts[r.broadcast], Type: r.typ, Detail: r.detail}
		if q.ByPeriod != nil {
			if periods[r.slot] == "" {
				// A cell may begin before the span, in another period.
				periods[r.slot] = q.ByPeriod(time.UnixMicro(max(r.slot*slot.Microseconds(), q.From.UnixMicro())))
			}
			c.Period = periods[r.slot]
		}
		i, ok := index[c]
		if !ok {
			i = len(out)
			index[c] = i
			out = append(out, c)
		}
		out[i].Events += int(r.events)
		out[i].Recipients += int(r.recipients)
		out[i].People += int(r.people)
	}
	return out, nil
}

// Usage returns a team's usage from one time up to, but not including, another.
func (s *Service) Usage(ctx context.Context, teamID string, from, to time.Time) (u Usage, err error) {
	all, err := s.Count(ctx, teamID, Query{From: from, To: to})
	for _, c := range all {
		switch c.Type {
		case "sent":
			u.Sent += c.Recipients
		case "received":
			u.Received += c.Events
		}
	}
	return u, err
}
