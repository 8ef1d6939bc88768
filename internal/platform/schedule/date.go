package schedule

import (
	"strings"
	"time"
)

// Date is a date, or a date and time, in ISO 8601.
type Date struct {
	t     time.Time // in UTC if the text has no time zone
	timed bool      // whether the text has a time of day
	fixed bool      // whether the text has a time zone
}

// dateLayouts are the accepted forms of a date with a time. A fraction of a second is accepted after the seconds.
var dateLayouts = func() (all []string) {
	for _, between := range []string{"T", " "} {
		for _, clock := range []string{"15:04:05", "15:04"} {
			for _, zone := range []string{"Z07:00", "", "Z0700", "Z07"} {
				all = append(all, time.DateOnly+between+clock+zone)
			}
		}
	}
	return all
}()

// ParseDate parses a date such as 2026-08-05, or a date and time such as 2026-08-05T15:04:05Z. A space may replace the
// T, and the seconds and the time zone may be missing. Spaces around the text are ignored. For any other text,
// ParseDate returns false. All packages that read dates from payloads and properties use ParseDate.
func ParseDate(text string) (d Date, ok bool) {
	text = strings.TrimSpace(text)
	if len(text) > maxText {
		return d, false
	}
	if t, err := time.Parse(time.DateOnly, text); err == nil {
		return Date{t: t}, true
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			return Date{t: t, timed: true, fixed: strings.Contains(layout, "Z")}, true
		}
	}
	return d, false
}

// Timed reports whether the date has a time of day.
func (d Date) Timed() bool { return d.timed }

// In returns the instant of the date, in UTC. If the date has no time zone, In uses the given zone. If the date has no
// time of day, In uses the given one. Clock changes have the same effect as in [TimeOfDay.On].
func (d Date) In(zone *time.Location, at TimeOfDay) time.Time {
	if d.fixed {
		return d.t.UTC()
	}
	c := clock{hour: at.Hour, min: at.Minute}
	if d.timed {
		c = clock{hour: d.t.Hour(), min: d.t.Minute(), sec: d.t.Second(), nano: d.t.Nanosecond()}
	}
	year, month, day := d.t.Date()
	return wall(year, month, day, c, zone).UTC()
}
