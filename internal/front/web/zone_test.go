package web

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests also run on systems without a time zone database
)

// A page shows its times in the zone of the browser, except those that say how much time has passed. Text that looks
// like a time element stays as it is, because templates escape it.
func TestTimesInZone(t *testing.T) {
	zone, ok := ParseZone("America/New_York")
	if !ok {
		t.Fatal("the zone is unknown")
	}
	at := time.Date(2026, 3, 8, 7, 0, 0, 0, time.UTC) // when the clocks are set ahead
	page := string(when(at)) + "|" + string(ago(at)) + "|" + string(timeElement(at, "clock", at.Format(clockLayout))) +
		"|" + string(timeElement(at, "ago", "9 min")) + "|&lt;time datetime=|" + string(when(at.Add(-time.Second))) +
		"|" + string(relative(at))
	want := []string{`>8 Mar 2026, 03:00:00<`, `>8 Mar 03:00<`, `>03:00:00<`, `>9 min<`, `&lt;time`,
		`title="8 March 2026, 01:59:59 America/New_York">8 Mar 2026, 01:59:59<`, `>8 Mar 03:00<`}
	got := strings.Split(string(inZone([]byte(page), zone)), "|")
	for i := range want {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("%s lacks %s", got[i], want[i])
		}
		if i != 4 && !strings.Contains(got[i], `datetime="2026-03-08T0`) {
			t.Errorf("the exact time of %s has changed", got[i])
		}
	}
}

func TestParseZone(t *testing.T) {
	for name, want := range map[string]bool{"UTC": true, "Asia/Katmandu": true, "": false, "Local": false,
		"../../etc/passwd": false, "/etc/localtime": false, strings.Repeat("a", 65): false, "Europe/Nowhere": false} {
		if _, ok := ParseZone(name); ok != want {
			t.Errorf("%q: %v", name, ok)
		}
	}
}
