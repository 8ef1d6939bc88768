package schedule

import "time"

type dayKind uint8

const (
	dayNone    dayKind = iota // no day given: the next occurrence of the time, today or tomorrow
	dayOffset                 // a given number of days from today
	dayWeekday                // the next occurrence of the given weekday
	dayNext                   // the given weekday in the following week
	dayDate
)

// day is a day as the user wrote it. The date of a day depends on the time zone.
type day struct {
	kind    dayKind
	offset  int
	weekday time.Weekday
	year    int
	month   time.Month
	mday    int
}

var weekdays = map[string]time.Weekday{
	"sunday": time.Sunday, "sun": time.Sunday,
	"monday": time.Monday, "mon": time.Monday,
	"tuesday": time.Tuesday, "tue": time.Tuesday, "tues": time.Tuesday,
	"wednesday": time.Wednesday, "wed": time.Wednesday,
	"thursday": time.Thursday, "thu": time.Thursday, "thur": time.Thursday, "thurs": time.Thursday,
	"friday": time.Friday, "fri": time.Friday,
	"saturday": time.Saturday, "sat": time.Saturday,
}

// day parses "today", "tomorrow", a weekday or a date. The word "on" may precede a weekday or a date.
func (p *phrase) day() (day, bool) {
	if p.word("today") {
		return day{kind: dayOffset}, true
	}
	if p.word("tomorrow") {
		return day{kind: dayOffset, offset: 1}, true
	}
	start := p.next
	p.word("on")
	kind := dayWeekday
	if p.word("next") {
		kind = dayNext
	}
	if w, ok := weekdays[p.peek()]; ok {
		p.next++
		return day{kind: kind, weekday: w}, true
	}
	if m := isoDate.FindStringSubmatch(p.peek()); m != nil && kind == dayWeekday {
		d := day{kind: dayDate, year: number(m[1]), month: time.Month(number(m[2])), mday: number(m[3])}
		// This check rejects dates such as 30 February, which time.Date would turn into 2 March.
		if t := time.Date(d.year, d.month, d.mday, 0, 0, 0, 0, time.UTC); t.Month() == d.month && t.Day() == d.mday {
			p.next++
			return d, true
		}
	}
	p.next = start
	return day{}, false
}

// resolve returns the instant at which a time of day occurs on day d in a time zone.
func (d day) resolve(c clock, zone *time.Location, now time.Time) time.Time {
	here := now.In(zone)
	year, month, today := here.Date()
	on := func(days int) time.Time { return wall(year, month, today+days, c, zone) }
	switch d.kind {
	case dayOffset:
		return on(d.offset)
	case dayNext:
		return on(7 - sinceMonday(here.Weekday()) + sinceMonday(d.weekday))
	case dayWeekday:
		days := (int(d.weekday) - int(here.Weekday()) + 7) % 7
		if t := on(days); t.After(now) {
			return t
		}
		return on(days + 7)
	case dayDate:
		return wall(d.year, d.month, d.mday, c, zone)
	default:
		if t := on(0); t.After(now) {
			return t
		}
		return on(1)
	}
}

func sinceMonday(w time.Weekday) int { return (int(w) + 6) % 7 }

// wall returns the instant at which clocks in a zone show a given time. If a clock change makes the time occur twice or
// never, the result of time.Date is not specified. The wall function therefore tries the offsets before and after the
// change. No zone's offset from UTC exceeds one day.
func wall(year int, month time.Month, mday int, c clock, zone *time.Location) time.Time {
	utc := time.Date(year, month, mday, c.hour, c.min, c.sec, c.nano, time.UTC)
	_, before := utc.Add(-24 * time.Hour).In(zone).Zone()
	_, after := utc.Add(24 * time.Hour).In(zone).Zone()
	first := utc.Add(-time.Duration(before) * time.Second)
	second := utc.Add(-time.Duration(after) * time.Second)
	shows := func(t time.Time) bool {
		_, offset := t.In(zone).Zone()
		return t.Add(time.Duration(offset) * time.Second).Equal(utc)
	}
	if !shows(first) && shows(second) {
		return second
	}
	return first // the only instant or the first of two; in a gap, the offset before the gap applies
}
