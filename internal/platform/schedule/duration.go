package schedule

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// MaxDuration is the longest duration that Duration accepts, about ten years. Callers that have a lower limit reject
// longer durations with their own message.
const MaxDuration = 3650 * 24 * time.Hour

var errDuration = errors.New(`use a number and a unit such as "10 minutes", "2 hours", "1 day" or "1h 30m"`)

var units = map[string]time.Duration{
	"s": time.Second, "sec": time.Second, "secs": time.Second, "second": time.Second, "seconds": time.Second,
	"m": time.Minute, "min": time.Minute, "mins": time.Minute, "minute": time.Minute, "minutes": time.Minute,
	"h": time.Hour, "hr": time.Hour, "hrs": time.Hour, "hour": time.Hour, "hours": time.Hour,
	"d": 24 * time.Hour, "day": 24 * time.Hour, "days": 24 * time.Hour,
	"w": 7 * 24 * time.Hour, "week": 7 * 24 * time.Hour, "weeks": 7 * 24 * time.Hour,
}

// Duration parses a duration. A duration consists of whole numbers with units from seconds to weeks, larger units
// first, each unit once. The words "a" and "an" mean 1.
func Duration(s string) (time.Duration, error) {
	if len(s) > maxText {
		return 0, fmt.Errorf("a duration of %d characters is not understood: %w", len(s), errDuration)
	}
	p := newPhrase(s)
	d, ok := p.duration()
	if !ok || !p.end() {
		return 0, fmt.Errorf("%q is not understood as a duration: %w", s, errDuration)
	}
	return d, nil
}

var amounts = regexp.MustCompile(`\d+|[a-z]+`)

// duration parses all remaining words in the phrase as a duration.
func (p *phrase) duration() (time.Duration, bool) {
	text := strings.Join(p.low[p.next:], " ")
	p.next = len(p.low)
	words := amounts.FindAllString(text, -1)
	if strings.Trim(amounts.ReplaceAllString(text, ""), " ") != "" {
		return 0, false // signs, fractions and other characters are rejected
	}
	var total time.Duration
	last := MaxDuration
	for first := true; len(words) > 0; first = false {
		if words[0] == "and" && !first {
			words = words[1:]
		}
		if len(words) < 2 {
			return 0, false
		}
		n, err := strconv.ParseInt(words[0], 10, 64)
		if words[0] == "a" || words[0] == "an" {
			n, err = 1, nil
		}
		unit, ok := units[words[1]]
		if err != nil || !ok || unit >= last || n > int64(MaxDuration/unit) {
			return 0, false
		}
		total += time.Duration(n) * unit
		last, words = unit, words[2:]
	}
	return total, last != MaxDuration && total <= MaxDuration
}

// Words returns a duration as a string, such as "1 day 2 hours", that [Duration] can parse. Fractions of a second are
// truncated.
func Words(d time.Duration) string {
	var words []string
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		n := d / u.length
		d -= n * u.length
		switch {
		case n == 1:
			words = append(words, "1 "+u.name)
		case n > 1:
			words = append(words, fmt.Sprintf("%d %ss", n, u.name))
		}
	}
	if len(words) == 0 {
		return "0 seconds"
	}
	return strings.Join(words, " ")
}
