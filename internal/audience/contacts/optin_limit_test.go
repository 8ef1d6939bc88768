package contacts

import (
	"fmt"
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var a optInLimiter
	for i, c := range []struct {
		key   string
		after time.Duration
		n     int
		want  bool
	}{
		{"a", 0, 3, true},
		{"a", 0, 3, false}, // the limit is 5
		{"a", 30 * time.Minute, 2, true},
		{"a", 59 * time.Minute, 1, false},
		{"b", 59 * time.Minute, 5, true},
		{"a", time.Hour, 5, true},
		{"a", time.Hour, 1, false},
		{"a", time.Hour, 0, true},
		{"c", 0, 6, false},
	} {
		if got := a.allow(c.key, now.Add(c.after), c.n, 5); got != c.want {
			t.Errorf("%d: %d of %s: %v", i, c.n, c.key, got)
		}
	}
}

// The limiter stores a limited number of counts: when it is full, it removes expired counts, or all counts if none has
// expired.
func TestOptInLimiterIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var a optInLimiter
	for i := range maxOptInContacts {
		a.allow(fmt.Sprint(i), now.Add(time.Duration(i%2)*time.Hour), 1, 1)
	}
	if a.allow("1", now.Add(time.Hour), 1, 1) || !a.allow("new", now.Add(time.Hour), 1, 1) ||
		len(a.counts) != maxOptInContacts/2+1 || a.allow("1", now.Add(time.Hour), 1, 1) {
		t.Errorf("%d are counted after those that are over were forgotten", len(a.counts))
	}
	for i := range maxOptInContacts {
		a.allow(fmt.Sprint("x", i), now.Add(time.Hour), 1, 1)
		if len(a.counts) > maxOptInContacts {
			t.Fatalf("%d are counted", len(a.counts))
		}
	}
}
