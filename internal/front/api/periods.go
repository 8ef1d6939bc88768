package api

import (
	"iter"
	"time"
)

// The client chooses the time span, which may be as long as ten thousand years. Periods are computed from calendar
// dates, because such a time span exceeds the range of time.Duration.

// period returns the name of the period that contains t in the requested time zone. Weeks begin on Monday.
func (in *metricsIn) period(t time.Time) string {
	t = t.In(in.zone)
	switch in.granularity {
	case "hourly":
		return t.Truncate(time.Minute).Add(-time.Duration(t.Minute()) * time.Minute).Format("2006-01-02T15:04:05-07:00")
	case "weekly":
		return t.AddDate(0, 0, -(int(t.Weekday())+6)%7).Format(time.DateOnly)
	case "monthly":
		return t.Format("2006-01") + "-01"
	}
	return t.Format(time.DateOnly)
}

// bounds returns the first and the last microsecond of the time span in the requested time zone. If the span is empty,
// ok is false.
func (in *metricsIn) bounds() (first, last time.Time, ok bool) {
	return in.From.In(in.zone), in.To.Add(-time.Microsecond).In(in.zone), in.From.Before(in.To)
}

// countPeriods returns the number of periods in the time span, and runs in constant time. If the time zone skips a day
// or part of an hour, the number may be too high by one.
func (in *metricsIn) countPeriods() int64 {
	first, last, ok := in.bounds()
	switch {
	case !ok:
		return 0
	case in.granularity == "hourly":
		return (hour(last)-hour(first)+3599)/3600 + 1 // Lord Howe Island's daylight saving time adds half an hour
	case in.granularity == "weekly":
		return (monday(last)-monday(first))/7 + 1
	case in.granularity == "monthly":
		return int64(last.Year()-first.Year())*12 + int64(last.Month()-first.Month()) + 1
	}
	return dayNumber(last) - dayNumber(first) + 1
}

// hour returns the start of the hour that contains t, in Unix seconds.
func hour(t time.Time) int64 { return t.Unix() - int64(t.Minute()*60+t.Second()) }

// dayNumber returns the number of days from 1 January 1970 to t's calendar day.
func dayNumber(t time.Time) int64 {
	y, m, d := t.Date()
	return time.Date(y, m, d, 0, 0, 0, 0, time.UTC).Unix() / 86400
}

// monday returns the day number of the Monday in the week that contains t.
func monday(t time.Time) int64 { return dayNumber(t) - int64(t.Weekday()+6)%7 }

// periods yields the names of all periods in the time span in order. An hour's name may occur more than once.
func (in *metricsIn) periods() iter.Seq[string] {
	first, last, ok := in.bounds()
	step, from, to := int64(1), dayNumber(first), dayNumber(last)
	if in.granularity == "weekly" {
		step, from = 7, monday(first)
	}
	return func(yield func(string) bool) {
		switch {
		case !ok:
		case in.granularity == "hourly":
			for t := first.Truncate(hourStep); !t.After(last); t = t.Add(hourStep) {
				if !yield(in.period(t)) {
					return
				}
			}
		case in.granularity == "monthly":
			for m := range int(in.countPeriods()) {
				if !yield(time.Date(first.Year(), first.Month()+time.Month(m), 1, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)) {
					return
				}
			}
		default:
			for n := from; n <= to; n += step {
				day := time.Unix(n*86400, 0).UTC()
				if step == 1 && !in.hasDay(day) {
					continue
				}
				if !yield(day.Format(time.DateOnly)) {
					return
				}
			}
		}
	}
}

// hasDay reports whether the day exists in the time zone. For example, Samoa skipped 30 December 2011.
func (in *metricsIn) hasDay(day time.Time) bool {
	y, m, d := day.Date()
	return time.Date(y, m, d, 12, 0, 0, 0, in.zone).Day() == d
}
