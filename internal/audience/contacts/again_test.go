package contacts

import (
	"fmt"
	"testing"
	"time"
)

func TestAgain(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var a again
	for i, c := range []struct {
		key   string
		after time.Duration
		n     int
		want  bool
	}{
		{"a", 0, 3, true},
		{"a", 0, 3, false}, // of 5
		{"a", 30 * time.Minute, 2, true},
		{"a", 59 * time.Minute, 1, false},
		{"b", 59 * time.Minute, 5, true},
		{"a", time.Hour, 5, true},
		{"a", time.Hour, 1, false},
		{"a", time.Hour, 0, true},
		{"c", 0, 6, false},
	} {
		if got := a.take(c.key, now.Add(c.after), c.n, 5); got != c.want {
			t.Errorf("%d: %d of %s: %v", i, c.n, c.key, got)
		}
	}
}

// What is counted is bounded: what is over is forgotten first, and all of it if nothing is.
func TestAgainIsBounded(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	var a again
	for i := range againCount {
		a.take(fmt.Sprint(i), now.Add(time.Duration(i%2)*time.Hour), 1, 1)
	}
	if a.take("1", now.Add(time.Hour), 1, 1) || !a.take("new", now.Add(time.Hour), 1, 1) ||
		len(a.all) != againCount/2+1 || a.take("1", now.Add(time.Hour), 1, 1) {
		t.Errorf("%d are counted after those that are over were forgotten", len(a.all))
	}
	for i := range againCount {
		a.take(fmt.Sprint("x", i), now.Add(time.Hour), 1, 1)
		if len(a.all) > againCount {
			t.Fatalf("%d are counted", len(a.all))
		}
	}
}
