package explain

import (
	"fmt"
	"time"
)

// at writes a time for a sentence.
func at(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// length writes a length of time with its two largest units, such as "5 min 44 s".
func length(d time.Duration) string {
	d = max(d, 0)
	two := func(n time.Duration, unit, small time.Duration, a, b string) string {
		if rest := n % unit / small; rest > 0 {
			return fmt.Sprintf("%d %s %d %s", n/unit, a, rest, b)
		}
		return fmt.Sprintf("%d %s", n/unit, a)
	}
	const day = 24 * time.Hour
	switch {
	case d < time.Millisecond:
		return "less than 1 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(d, time.Minute, time.Second, "min", "s")
	case d < day:
		return two(d, time.Hour, time.Minute, "h", "min")
	}
	return two(d, day, time.Hour, "d", "h")
}

// counted writes a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
