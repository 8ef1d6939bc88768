package dashboard

import (
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/web"
)

// startOf returns the start of the hour, day or week that contains a time, in the zone of that time. Weeks begin on
// Monday. An hour in which the zone's offset changes is divided at the change.
func startOf(t time.Time, by string) time.Time {
	if by == "hour" {
		start := t.Add(-time.Duration(t.Minute())*time.Minute - time.Duration(t.Second())*time.Second -
			time.Duration(t.Nanosecond()))
		if changed, _ := t.ZoneBounds(); start.Before(changed) {
			return changed
		}
		return start
	}
	y, m, d := t.Date()
	if by == "week" {
		d -= int(t.Weekday()+6) % 7
	}
	return midnight(y, m, d, t.Location())
}

// nextOf returns the start of the following hour, day or week. A zone may have skipped a day, as Samoa did.
func nextOf(t time.Time, by string) time.Time {
	if by == "hour" {
		return startOf(t.Add(time.Hour), by)
	}
	step := 1
	if by == "week" {
		step = 7
	}
	y, m, d := t.Date()
	next := midnight(y, m, d+step, t.Location())
	for ; !next.After(t); step++ {
		next = midnight(y, m, d+step+1, t.Location())
	}
	return next
}

// midnight returns the first moment of a day in a zone. If the clocks skip the time from 0:00 to 1:00, the day begins
// at 1:00. If the clocks show that time twice, the day begins with the first one.
func midnight(y int, m time.Month, d int, zone *time.Location) time.Time {
	noon := time.Date(y, m, d, 12, 0, 0, 0, zone)
	start := time.Date(y, m, d, 0, 0, 0, 0, zone)
	if start.Day() != noon.Day() { // 0:00 is skipped, and Date returned a time of the day before
		_, start = start.ZoneBounds()
		return start
	}
	if changed, _ := start.ZoneBounds(); !changed.IsZero() {
		_, offset := changed.Add(-time.Second).Zone()
		first := time.Date(y, m, d, 0, 0, 0, 0, time.FixedZone("", offset)).In(zone)
		if first.Before(changed) && first.Day() == start.Day() {
			return first
		}
	}
	return start
}

// starts returns the starts of all periods of a span that ends now, in the zone of that time.
func (s *metricSpan) starts(now time.Time, by string) (all []time.Time) {
	from := startOf(startOf(now, "hour").Add(-23*time.Hour), "hour")
	if s.days > 1 {
		y, m, d := now.Date()
		from = startOf(midnight(y, m, d+1-s.days, now.Location()), by)
	}
	for t := from; !t.After(now); t = nextOf(t, by) {
		all = append(all, t)
	}
	return all
}

// axisLabels returns a short label for the axis and a full name of the period that begins at t. The label has the month
// only if the period before it is in another month. The name of an hour has the offset from UTC if the offset has just
// changed, because the clocks may show the hour twice.
func axisLabels(t, before time.Time, by string) (label, full string) {
	switch by {
	case "hour":
		if _, offset := t.Zone(); !before.IsZero() {
			if _, earlier := before.Zone(); earlier != offset {
				return t.Format("15:04"), t.Format("2 Jan 15:04 (-07:00)")
			}
		}
		return t.Format("15:04"), t.Format("2 Jan 15:04")
	case "week":
		return t.Format("2 Jan"), t.Format("2 Jan") + " to " + t.AddDate(0, 0, 6).Format("2 Jan")
	}
	if t.Month() == before.Month() && t.Year() == before.Year() {
		return t.Format("2"), t.Format("2 Jan")
	}
	return t.Format("2 Jan"), t.Format("2 Jan")
}

// hourLayout is the format of an hour's start in the parameter in. The time is one of UTC, so that it is not ambiguous
// when the clocks of a zone are set back.
const hourLayout = "2006-01-02T15:04Z"

// periodName returns the value of the parameter in that names the hour, day or week that begins at t. It ends with the
// zone, except for UTC, so that the address means the same to every visitor.
func periodName(t time.Time, by string) string {
	zone := ""
	if t.Location() != time.UTC {
		zone = "@" + t.Location().String()
	}
	switch by {
	case "hour":
		if zone == "" {
			return t.Format("2006-01-02T15")
		}
		return t.UTC().Format(hourLayout) + zone
	case "week":
		return t.Format(time.DateOnly) + "_" + t.AddDate(0, 0, 6).Format(time.DateOnly) + zone
	}
	return t.Format(time.DateOnly) + zone
}

// periodOf parses the value of the parameter in that names an hour, a day, or the first and the last day of a period.
// The days are those of UTC, or of the zone that follows an @. The times are in that zone.
func periodOf(in string) (from, to time.Time, ok bool) {
	in, name, zoned := strings.Cut(in, "@")
	zone := time.UTC
	if zoned {
		if zone, ok = web.ParseZone(name); !ok {
			return from, to, false
		}
	}
	if t, err := time.Parse("2006-01-02T15", in); err == nil && !zoned {
		return t, t.Add(time.Hour), true
	}
	if t, err := time.Parse(hourLayout, in); err == nil {
		t = t.In(zone)
		return t, nextOf(t, "hour"), true
	}
	first, last, several := strings.Cut(in, "_")
	if !several {
		last = first
	}
	from, err := time.Parse(time.DateOnly, first)
	to, err2 := time.Parse(time.DateOnly, last)
	if err != nil || err2 != nil || to.Before(from) {
		return time.Time{}, time.Time{}, false
	}
	return midnight(from.Year(), from.Month(), from.Day(), zone), midnight(to.Year(), to.Month(), to.Day()+1, zone), true
}

// periodLabel returns the words for a period, such as "16 Nov 2026, UTC" and "16 Nov 09:00, Europe/Berlin".
func periodLabel(from, to time.Time) string {
	zone := ", " + from.Location().String()
	last := to.Add(-time.Nanosecond)
	switch {
	case to.Sub(from) <= 2*time.Hour:
		return from.Format("2 Jan 15:04") + zone
	case from.YearDay() == last.YearDay() && from.Year() == last.Year():
		return from.Format("2 Jan 2006") + zone
	}
	return from.Format("2 Jan") + " to " + last.Format("2 Jan 2006") + zone
}
