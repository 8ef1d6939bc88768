// Package schedule parses the times and durations that users write. It accepts ISO 8601 and English phrases such as "in
// 2 hours" or "Friday at 3pm ET" (API reference sections 8.5 and 22.4).
//
// # Invariants
//
// The functions depend only on their arguments and the time zone database, and return times in UTC. A string is either
// parsed completely or rejected; no part of it is ignored. Case and spacing do not matter.
//
// # How ambiguous texts are understood
//
// Times without a zone are UTC. A time of day without a day means its next occurrence. A weekday also means its next
// occurrence, which may be today. "next" with a weekday means that weekday in the following week. Weeks begin on
// Monday. "Midnight" is the beginning of the named day. "In a day" is 24 hours. If a zone skips a time when its clocks
// go forward, the time moves forward by the same amount. A time that occurs twice because of a clock change means the
// first occurrence. EST, CET and similar abbreviations are fixed offsets even in summer; ET, CT, MT, PT and names such
// as Europe/Berlin include daylight saving time.
//
// # Failures
//
// Error texts are sentences that can be shown to the user.
//
// # Out of scope
//
// Callers, not this package, check whether a time is in the past or too far in the future. Programs for systems without
// a time zone database must import time/tzdata.
package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// maxText is the maximum length of a string to parse, in bytes.
const maxText = 200

var errTime = errors.New(`use ISO 8601 such as 2026-08-05T15:04:05Z, ` +
	`or a phrase such as "in 2 hours", "tomorrow at 9am" or "Friday at 3pm ET"`)

// Parse returns the time that a string describes, in UTC. Phrases such as "in 2 hours" are relative to now.
func Parse(s string, now time.Time) (time.Time, error) {
	if len(s) > maxText {
		return time.Time{}, fmt.Errorf("a time of %d characters is not understood: %w", len(s), errTime)
	}
	p := newPhrase(s)
	t, ok := p.time(now)
	if !ok || !p.end() {
		return time.Time{}, fmt.Errorf("%q is not understood as a time: %w", s, errTime)
	}
	return t.UTC(), nil
}

// phrase is a string that has been split into words. The field next is the index of the first word that has not been
// parsed. A parsing method that returns true has advanced next past the words that it parsed.
type phrase struct {
	raw  []string // words in the user's spelling, needed for zone names
	low  []string // in lower case
	next int
}

var (
	isoJoined = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d[^apAP]*)$`)
	isoDate   = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)$`)
	timeOfDay = regexp.MustCompile(
		`^(\d{1,2})(?::(\d\d)(?::(\d\d)(?:[.,](\d{1,9}))?)?)?(am|pm|a\.m\.|p\.m\.)?(z|[+-]\d\d(?::?\d\d)?)?$`)
)

func newPhrase(s string) *phrase {
	// "Friday, 3pm" has two words. A comma without a following space is a decimal comma and is kept.
	p := &phrase{raw: strings.Fields(strings.ReplaceAll(s, ", ", " "))}
	if len(p.raw) > 0 {
		if m := isoJoined.FindStringSubmatch(p.raw[0]); m != nil {
			p.raw = append([]string{m[1], m[2]}, p.raw[1:]...)
		}
	}
	for _, w := range p.raw {
		p.low = append(p.low, strings.ToLower(w))
	}
	return p
}

func (p *phrase) end() bool { return p.next == len(p.low) }

// peek returns the next word, or "" at the end.
func (p *phrase) peek() string {
	if p.end() {
		return ""
	}
	return p.low[p.next]
}

// word parses the next word if it is one of the given words.
func (p *phrase) word(words ...string) bool {
	for _, w := range words {
		if !p.end() && p.low[p.next] == w {
			p.next++
			return true
		}
	}
	return false
}

func (p *phrase) time(now time.Time) (time.Time, bool) {
	if p.word("in") {
		d, ok := p.duration()
		return now.Add(d), ok
	}
	d, hasDay := p.day()
	at := p.word("at")
	if p.end() && d.kind == dayDate && !at { // only a date may be given without a time of day
		return d.resolve(clock{}, time.UTC, now), true
	}
	c, ok := p.clock(at)
	if !ok {
		return time.Time{}, false
	}
	zone, hasZone := c.zone, c.zone != nil
	if !hasZone {
		zone, hasZone = p.zone()
	}
	if !hasDay { // "9am ET tomorrow".
		if d, hasDay = p.day(); hasDay && !hasZone {
			zone, hasZone = p.zone()
		}
	}
	if !hasZone {
		zone = time.UTC
	}
	return d.resolve(c, zone, now), true
}

// clock is a time of day. The zone field is set only if the user wrote the zone without a space before it.
type clock struct {
	hour, min, sec, nano int
	zone                 *time.Location
}

// clock parses a time of day. A number without minutes and without am or pm is an hour only after "at".
func (p *phrase) clock(at bool) (clock, bool) {
	if p.word("noon") {
		return clock{hour: 12}, true
	}
	if p.word("midnight") {
		return clock{}, true
	}
	m := timeOfDay.FindStringSubmatch(p.peek())
	if m == nil {
		return clock{}, false
	}
	p.next++
	half := m[5]
	if w := p.peek(); half == "" && m[6] == "" && p.word("am", "pm", "a.m.", "p.m.") {
		half = w
	}
	if half == "" && m[2] == "" && !at {
		return clock{}, false
	}
	c := clock{hour: number(m[1]), min: number(m[2]), sec: number(m[3])}
	if m[4] != "" {
		c.nano = number((m[4] + "00000000")[:9])
	}
	if half != "" {
		if c.hour < 1 || c.hour > 12 {
			return clock{}, false
		}
		c.hour %= 12 // 12am is midnight, and 12pm is noon
		if half[0] == 'p' {
			c.hour += 12
		}
	}
	if m[6] != "" {
		zone, ok := offsetZone(m[6])
		if !ok {
			return clock{}, false
		}
		c.zone = zone
	}
	return c, c.hour < 24 && c.min < 60 && c.sec < 60
}

// number parses up to nine digits. For an empty string, number returns 0.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
