package metrics

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	rollStep    = time.Hour // time span whose events are counted in one step
	recountStep = 50        // maximum number of slots that one transaction recounts
	lateStep    = 1000      // maximum number of late entries that one transaction deletes
	lateMax     = 100_000   // maximum number of late entries per pass

	teamsPerQuery = 200 // number of teams that one query examines

	// clockSlack is how far counters may reach beyond the target time without a clock that was set back: the clocks of
	// nodes differ a little, and the target time is a whole minute.
	clockSlack = time.Minute
)

// counterGroups specifies the columns by which counters are grouped.
var counterGroups = groups{cells: cells{length: 1}, domain: true, broadcast: true}

// RollUp counts every team's events that are old enough and not yet counted, and corrects counters that late events
// made wrong. If RollUp fails for one team, it returns the error after processing all other teams.
func (s *Service) RollUp(ctx context.Context) error { return s.RollUpPart(ctx, jobs.Whole) }

// RollUpPart does the work of RollUp for the teams whose short ids are in the range of the part.
func (s *Service) RollUpPart(ctx context.Context, p jobs.Part) error {
	var failed error
	for after, last := p.Range(); ; {
		now := s.d.Now()
		target := targetAt(now)
		some, err := teamsAfter(ctx, s.d.Reader, after, last, target, target+clockSlack.Microseconds(), teamsPerQuery)
		if err != nil || len(some) == 0 {
			return errors.Join(failed, err)
		}
		for _, t := range some {
			if !t.work {
				continue
			}
			if err := s.rollTeam(ctx, t.id, now); err != nil {
				failed = errors.Join(failed, fmt.Errorf("count the events of team %s: %w", t.id, err))
			}
			if ctx.Err() != nil {
				return failed
			}
		}
		after = some[len(some)-1].short
	}
}

// targetAt returns the time up to which RollUp counts events at the given time.
func targetAt(now time.Time) int64 { return now.Add(-margin).Truncate(time.Minute).UnixMicro() }

func (s *Service) rollTeam(ctx context.Context, teamID string, now time.Time) error {
	for _, step := range []func(context.Context, string, state, int64) (bool, error){s.rewind, s.correct, s.advance} {
		for more := true; more; {
			at, err := getState(ctx, s.d.Reader, teamID)
			if err != nil {
				return err
			}
			if more, err = step(ctx, teamID, at, targetAt(now)); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// rewind makes the events of the last day be counted again if counters reach beyond the target time by more than
// [clockSlack], because a clock that was ahead was set back. Otherwise, events that are recorded until that time would
// never be counted. Slots that are final stay as they are. The result is always false, because one step is enough.
func (s *Service) rewind(ctx context.Context, teamID string, at state, target int64) (more bool, err error) {
	from := max(down(target-finality.Microseconds()), at.final)
	until := from * slot.Microseconds()
	if at.until <= target+clockSlack.Microseconds() || until >= at.until {
		return false, nil
	}
	_, err = s.advanceState(ctx, teamID, &at, until, func(tx *db.Tx) { deleteCountersSince(ctx, tx, teamID, from) })
	return false, err
}

// advance counts the next events before the target time, and reports whether more events may remain. The events are
// read before the transaction, because events that are old enough to be counted no longer change. Late events, which
// are the exception, are handled through their late entries.
func (s *Service) advance(ctx context.Context, teamID string, at state, target int64) (more bool, err error) {
	first, ok, err := nextEvent(ctx, s.d.Reader, teamID, at.until)
	if err != nil || !ok || first >= target {
		return false, err
	}
	began := first - first%time.Minute.Microseconds()
	until := min(target, began+rollStep.Microseconds())
	// The span begins where the counters end: after a rewind, deleted events may be earlier than the first event.
	rows, err := countEvents(ctx, s.d.Reader, teamID, span{at.until, until}, counterGroups, filters{}, rowsMax+1)
	for err == nil && len(rows) > rowsMax && until-began > 2*time.Minute.Microseconds() {
		until = began + (until-began)/2
		rows, err = countEvents(ctx, s.d.Reader, teamID, span{at.until, until}, counterGroups, filters{}, rowsMax+1)
	}
	if err != nil {
		return false, err
	}
	if len(rows) > rowsMax {
		return false, fmt.Errorf("two minutes have more than %d different counters", rowsMax)
	}
	_, err = s.advanceState(ctx, teamID, &at, until, func(tx *db.Tx) { addCounters(ctx, tx, teamID, rows) })
	return true, err
}

// correct recounts the slots that late events affect, each slot once, and reports whether more late entries may remain.
func (s *Service) correct(ctx context.Context, teamID string, at state, _ int64) (more bool, err error) {
	ids, err := lateIDs(ctx, s.d.Reader, teamID, lateMax)
	if err != nil || len(ids) == 0 {
		return false, err
	}
	// A late entry is committed together with its event, so the queries from here on include the events of the entries
	// read above.
	dirty, err := dirtySlots(ctx, s.d.Reader, teamID, at.until)
	if err != nil {
		return false, err
	}
	dirty = slices.DeleteFunc(dirty, func(d int64) bool { return d < at.final })
	for some := range slices.Chunk(dirty, recountStep) {
		if ok, err := s.recount(ctx, teamID, &at, some); err != nil || !ok {
			return false, err
		}
	}
	// The late entries are deleted last. Until the late entries are deleted, queries do not use the counters of the
	// affected slots, so an interruption loses nothing. If another node has changed the state, it may have counted
	// slots that dirtySlots did not return. The late entries are then kept for the next pass.
	for some := range slices.Chunk(ids, lateStep) {
		deletes := func(tx *db.Tx) { deleteLate(ctx, tx, teamID, some) }
		if ok, err := s.advanceState(ctx, teamID, &at, at.until, deletes); err != nil || !ok {
			return false, err
		}
	}
	return len(ids) == lateMax, nil
}

// recount replaces the counters of the given slots. If the state has changed, recount changes nothing and returns
// false, as advanceState does.
func (s *Service) recount(ctx context.Context, teamID string, at *state, slots []int64) (ok bool, err error) {
	var rows []row
	for _, d := range slots {
		slotSpan := span{d * slot.Microseconds(), min((d+1)*slot.Microseconds(), at.until)}
		more, err := countEvents(ctx, s.d.Reader, teamID, slotSpan, counterGroups, filters{}, rowsMax)
		if err != nil {
			return false, err
		}
		rows = append(rows, more...)
	}
	return s.advanceState(ctx, teamID, at, at.until, func(tx *db.Tx) {
		for _, d := range slots {
			deleteCounters(ctx, tx, teamID, d)
		}
		addCounters(ctx, tx, teamID, rows)
	})
}

// advanceState records the new time up to which a team's events are counted, and calls f in the same transaction. If
// the state has changed since it was read, advanceState changes nothing and returns false.
func (s *Service) advanceState(ctx context.Context, teamID string, at *state, until int64, f func(tx *db.Tx)) (ok bool,
	err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) error {
		if ok, err = setState(ctx, tx, teamID, *at, until); err == nil && ok {
			f(tx)
		}
		return err
	})
	if err == nil && ok {
		*at = state{until, at.version + 1, at.final, at.knownFinal}
	}
	return ok, err
}
