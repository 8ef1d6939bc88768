package schedule

import (
	"testing"
	"time"
)

func TestWords(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"1 week": "7 days", "90 min": "1 hour 30 minutes", "1 second": "1 second", "25h": "1 day 1 hour",
		"0 min":                              "0 seconds",
		"2 days 2 hours 2 minutes 2 seconds": "2 days 2 hours 2 minutes 2 seconds",
	} {
		d, err := Duration(text)
		if err != nil {
			t.Fatal(err)
		}
		got := Words(d)
		if again, err := Duration(got); got != want || again != d || err != nil {
			t.Errorf("Words of %s is %q, which is %v, %v; want %q", text, got, again, err, want)
		}
	}
}

func TestZone(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 8, 5, 12, 0, 0, 0, time.UTC)
	for name, hours := range map[string]int{"UTC": 0, "Europe/Berlin": 2, "america/new_york": -4, "+2": 2, "ET": -4} {
		zone, err := Zone(name)
		if err != nil {
			t.Errorf("Zone(%q): %v", name, err)
			continue
		}
		if _, offset := at.In(zone).Zone(); offset != hours*3600 {
			t.Errorf("Zone(%q) is %d s from UTC", name, offset)
		}
	}
	for _, name := range []string{"", " ", "Mars/Base", "Local", "UTC now", "right/UTC", "../etc/passwd",
		string(make([]byte, 300))} {
		if zone, err := Zone(name); err == nil {
			t.Errorf("Zone(%q) = %v", name, zone)
		}
	}
}

// On and Next return the instant at which clocks in the zone show the time of day, even on days when the clocks change.
func TestTimeOfDay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ zone, now, at, want string }{
		{"UTC", "2026-08-05T12:00:00Z", "12:00", "2026-08-05T12:00:00Z"},
		{"UTC", "2026-08-05T12:00:01Z", "12:00", "2026-08-06T12:00:00Z"},
		{"UTC", "2026-12-31T23:00:00Z", "22:59", "2027-01-01T22:59:00Z"},
		{"Asia/Tokyo", "2026-08-05T16:00:00Z", "00:30", "2026-08-06T15:30:00Z"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "02:30", "2026-03-29T01:30:00Z"}, // skipped
		{"Europe/Berlin", "2026-03-29T01:30:01Z", "02:30", "2026-03-30T00:30:00Z"},
		{"Europe/Berlin", "2026-10-24T23:30:00Z", "02:30", "2026-10-25T00:30:00Z"}, // twice
		{"Europe/Berlin", "2026-10-25T00:30:01Z", "02:30", "2026-10-26T01:30:00Z"},
	} {
		zone, err := Zone(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, err := time.Parse(time.RFC3339, c.now)
		if err != nil {
			t.Fatal(err)
		}
		clock, err := time.Parse("15:04", c.at)
		if err != nil {
			t.Fatal(err)
		}
		got := TimeOfDay{clock.Hour(), clock.Minute()}.Next(now, zone).Format(time.RFC3339)
		if got != c.want {
			t.Errorf("%s in %s after %s: %s, want %s", c.at, c.zone, c.now, got, c.want)
		}
	}
}
