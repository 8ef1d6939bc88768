package schedule

import "time"

// TimeOfDay is a time that clocks show each day.
type TimeOfDay struct{ Hour, Minute int }

// On returns the instant of this time on a date in a zone, in UTC. If the clocks there skip this time, the instant is
// later by the skipped amount. If the clocks show this time twice on that date, On returns the first instant.
func (t TimeOfDay) On(year int, month time.Month, day int, zone *time.Location) time.Time {
	return wall(year, month, day, clock{hour: t.Hour, min: t.Minute}, zone).UTC()
}

// Next returns the first instant of this time in a zone that is not before now, in UTC.
func (t TimeOfDay) Next(now time.Time, zone *time.Location) time.Time {
	year, month, day := now.In(zone).Date()
	if today := t.On(year, month, day, zone); !today.Before(now) {
		return today
	}
	return t.On(year, month, day+1, zone)
}
