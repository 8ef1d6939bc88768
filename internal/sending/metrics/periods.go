package metrics

import (
	"fmt"
	"time"
)

// Unit says of what every period of a breakdown consists.
type Unit int

const (
	Slots Unit = iota // quarter hours
	Hours             // whole hours of a time zone
	Days              // whole days of a time zone
)

// cells divides the slots of a span into groups that statements may add up, because the part of a cell within the span
// belongs to one period. A cell begins at each slot that is a multiple of length, minus shift.
type cells struct{ length, shift int64 }

// start returns an SQL expression for the first slot of the cell that contains a slot.
func (c cells) start(slot string) string {
	if c.length == 1 {
		return slot
	}
	return fmt.Sprintf("(%s + %[2]d) / %[3]d * %[3]d - %[2]d", slot, c.shift, c.length)
}

// zoneChangesMax is the maximum number of changes of a time zone's offset that [cellsOf] follows.
const zoneChangesMax = 100

// cellsOf returns the longest cells for periods that consist of units of a time zone; nil means UTC. If the zone's
// offset changes within the span, not all of its days begin at the same time of the day in UTC. The length of the cells
// is then a divisor of the change, which is one hour in most zones, so that each day still begins with a cell. If the
// offset changes too often, or is no multiple of a slot, each slot is a cell.
func cellsOf(unit Unit, zone *time.Location, from, to time.Time) cells {
	length := map[Unit]time.Duration{Slots: slot, Hours: time.Hour, Days: 24 * time.Hour}[unit]
	if zone == nil {
		zone = time.UTC
	}
	at := time.Unix(max(from.Unix(), 0), 0).In(zone) // no event is older
	first := offset(at)
	for range zoneChangesMax {
		length = divisor(length, offset(at)-first)
		_, end := at.ZoneBounds()
		if end.IsZero() || !end.Before(to) {
			shift := (first%length + length) % length
			if length%slot != 0 || shift%slot != 0 {
				break
			}
			return cells{int64(length / slot), int64(shift / slot)}
		}
		at = end
	}
	return cells{length: 1}
}

// offset returns the difference between a time's clock and that of UTC.
func offset(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// divisor returns the greatest common divisor of two durations, of which at most one is zero.
func divisor(a, b time.Duration) time.Duration {
	for b != 0 {
		a, b = b, a%b
	}
	return a.Abs()
}
