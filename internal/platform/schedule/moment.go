package schedule

import "time"

// TimeOfDay is a local time of day.
type TimeOfDay struct{ Hour, Minute int }

// On returns, in UTC, the instant at which the time of day occurs on a date in a zone. If a clock change skips the
// time, the instant is later by the skipped amount. If the time occurs twice on that date, On returns the first
// instant.
func (t TimeOfDay) On(year int, month time.Month, day int, zone *time.Location) time.Time {
	return wall(year, month, day, clock{hour: t.Hour, min: t.Minute}, zone).UTC()
}

// Next returns the next instant, at or after now, at which clocks in a zone show this time of day. Next returns this
// instant in UTC.
func (t TimeOfDay) Next(now time.Time, zone *time.Location) time.Time {
	year, month, day := now.In(zone).Date()
	if today := t.On(year, month, day, zone); !today.Before(now) {
		return today
	}
	return t.On(year, month, day+1, zone)
}
