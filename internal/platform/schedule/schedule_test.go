package schedule

import (
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // the tests also run on systems without a time zone database
)

// wednesday is the current time in the test tables: a Wednesday in summer at 14:30:00 UTC. It is then 10:30 in New York
// and 16:30 in Berlin.
var wednesday = time.Date(2026, 8, 5, 14, 30, 0, 0, time.UTC)

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, want string }{
		// Date formats from ISO 8601, RFC 3339 and databases.
		{"2026-08-06T09:00:00Z", "2026-08-06T09:00:00Z"},
		{"2026-08-06t09:00:00z", "2026-08-06T09:00:00Z"},
		{"2026-08-06T09:00Z", "2026-08-06T09:00:00Z"},
		{"2026-08-06T09:00:00", "2026-08-06T09:00:00Z"},
		{"2026-08-06T09:00:00.5Z", "2026-08-06T09:00:00.5Z"},
		{"2026-08-06T09:00:00,123456789Z", "2026-08-06T09:00:00.123456789Z"},
		{"2026-08-06T09:00:00.000+02:00", "2026-08-06T07:00:00Z"},
		{"2026-08-06T09:00:00-0530", "2026-08-06T14:30:00Z"},
		{"2026-08-06T01:00+02", "2026-08-05T23:00:00Z"},
		{"2026-01-02 15:04:05+00", "2026-01-02T15:04:05Z"},
		{"2026-01-02 15:04:05.678901+00", "2026-01-02T15:04:05.678901Z"},
		{"2026-01-02 15:04:05 +01:00", "2026-01-02T14:04:05Z"},
		{"2026-01-02 15:04", "2026-01-02T15:04:00Z"},
		{"2026-01-02 15:04 UTC", "2026-01-02T15:04:00Z"},
		{"2026-01-02 15:04 Europe/Berlin", "2026-01-02T14:04:00Z"},
		{"2026-08-06", "2026-08-06T00:00:00Z"},
		{"2024-02-29", "2024-02-29T00:00:00Z"},
		{"1999-12-31T23:59:59-23:59", "2000-01-01T23:58:59Z"},
		{"2026-08-06 at 9am", "2026-08-06T09:00:00Z"},
		{"2026-08-06 at 9:30pm ET", "2026-08-07T01:30:00Z"},
		{"on 2026-08-06 at noon", "2026-08-06T12:00:00Z"},
		{"2026-08-06 midnight", "2026-08-06T00:00:00Z"},

		// From now.
		{"in 1 min", "2026-08-05T14:31:00Z"},
		{"in 30 sec", "2026-08-05T14:30:30Z"},
		{"in 45 seconds", "2026-08-05T14:30:45Z"},
		{"in 1 second", "2026-08-05T14:30:01Z"},
		{"in 10 minutes", "2026-08-05T14:40:00Z"},
		{"in 2 hours", "2026-08-05T16:30:00Z"},
		{"in 1 day", "2026-08-06T14:30:00Z"},
		{"in 3 days", "2026-08-08T14:30:00Z"},
		{"in 1 week", "2026-08-12T14:30:00Z"},
		{"in 2 weeks", "2026-08-19T14:30:00Z"},
		{"in an hour", "2026-08-05T15:30:00Z"},
		{"in a minute", "2026-08-05T14:31:00Z"},
		{"in a week", "2026-08-12T14:30:00Z"},
		{"IN  10   MINUTES", "2026-08-05T14:40:00Z"},
		{"\tin 10min\n", "2026-08-05T14:40:00Z"},
		{"in 1h 30m", "2026-08-05T16:00:00Z"},
		{"in 1 hour and 30 minutes", "2026-08-05T16:00:00Z"},
		{"in 0 min", "2026-08-05T14:30:00Z"},

		// Phrases with a day and a time.
		{"today at 5pm", "2026-08-05T17:00:00Z"},
		{"today at 9am", "2026-08-05T09:00:00Z"},
		{"tomorrow at 9am", "2026-08-06T09:00:00Z"},
		{"Tomorrow At 9 AM", "2026-08-06T09:00:00Z"},
		{"tomorrow 9am", "2026-08-06T09:00:00Z"},
		{"tomorrow at 9", "2026-08-06T09:00:00Z"},
		{"tomorrow at 21", "2026-08-06T21:00:00Z"},
		{"tomorrow at 9:05 a.m.", "2026-08-06T09:05:00Z"},
		{"tomorrow, 9:05 p.m.", "2026-08-06T21:05:00Z"},
		{"tomorrow at 15:04:05", "2026-08-06T15:04:05Z"},
		{"tomorrow at 09:00", "2026-08-06T09:00:00Z"},
		{"tomorrow at 12am", "2026-08-06T00:00:00Z"},
		{"tomorrow at 12pm", "2026-08-06T12:00:00Z"},
		{"tomorrow at 12:30am", "2026-08-06T00:30:00Z"},
		{"tomorrow at noon", "2026-08-06T12:00:00Z"},
		{"tomorrow noon", "2026-08-06T12:00:00Z"},
		{"tomorrow at midnight", "2026-08-06T00:00:00Z"},
		{"9am tomorrow", "2026-08-06T09:00:00Z"},
		{"at 9am ET tomorrow", "2026-08-06T13:00:00Z"},
		{"at 9am tomorrow ET", "2026-08-06T13:00:00Z"},

		// A time without a day means its next occurrence.
		{"at 5pm", "2026-08-05T17:00:00Z"},
		{"5pm", "2026-08-05T17:00:00Z"},
		{"15:00", "2026-08-05T15:00:00Z"},
		{"14:30", "2026-08-06T14:30:00Z"},
		{"9am", "2026-08-06T09:00:00Z"},
		{"noon", "2026-08-06T12:00:00Z"},
		{"midnight", "2026-08-06T00:00:00Z"},
		{"noon ET", "2026-08-05T16:00:00Z"},

		// Weekdays.
		{"Friday at 3pm", "2026-08-07T15:00:00Z"},
		{"Friday at 3pm ET", "2026-08-07T19:00:00Z"},
		{"friday at 3pm et", "2026-08-07T19:00:00Z"},
		{"Fri 3pm EST", "2026-08-07T20:00:00Z"},
		{"on Friday at 3pm EDT", "2026-08-07T19:00:00Z"},
		{"3pm on Friday", "2026-08-07T15:00:00Z"},
		{"Tuesday at 9am", "2026-08-11T09:00:00Z"},
		{"tues at 9am", "2026-08-11T09:00:00Z"},
		{"Wednesday at 3pm", "2026-08-05T15:00:00Z"},
		{"Wednesday at 2:30pm", "2026-08-12T14:30:00Z"},
		{"Wednesday at 9am", "2026-08-12T09:00:00Z"},
		{"Wednesday at 9am PT", "2026-08-05T16:00:00Z"},
		{"next Friday at 3pm", "2026-08-14T15:00:00Z"},
		{"next Monday at 9am", "2026-08-10T09:00:00Z"},
		{"next Wednesday at 3pm", "2026-08-12T15:00:00Z"},
		{"next Sunday at noon", "2026-08-16T12:00:00Z"},
		{"Sunday at noon", "2026-08-09T12:00:00Z"},

		// Zones.
		{"tomorrow at 9am UTC", "2026-08-06T09:00:00Z"},
		{"tomorrow at 9am GMT", "2026-08-06T09:00:00Z"},
		{"tomorrow at 9am CET", "2026-08-06T08:00:00Z"},
		{"tomorrow at 9am CEST", "2026-08-06T07:00:00Z"},
		{"tomorrow at 9am BST", "2026-08-06T08:00:00Z"},
		{"tomorrow at 9am CT", "2026-08-06T14:00:00Z"},
		{"tomorrow at 9am CST", "2026-08-06T15:00:00Z"},
		{"tomorrow at 9am MT", "2026-08-06T15:00:00Z"},
		{"tomorrow at 9am MST", "2026-08-06T16:00:00Z"},
		{"tomorrow at 9am PT", "2026-08-06T16:00:00Z"},
		{"tomorrow at 9am PST", "2026-08-06T17:00:00Z"},
		{"tomorrow at 9am PDT", "2026-08-06T16:00:00Z"},
		{"tomorrow at 9am Europe/Berlin", "2026-08-06T07:00:00Z"},
		{"tomorrow at 9am europe/berlin", "2026-08-06T07:00:00Z"},
		{"tomorrow at 9am america/new_york", "2026-08-06T13:00:00Z"},
		{"tomorrow at 9am America/Argentina/Buenos_Aires", "2026-08-06T12:00:00Z"},
		{"tomorrow at 9am Asia/Kolkata", "2026-08-06T03:30:00Z"},
		{"tomorrow at 9am +05:30", "2026-08-06T03:30:00Z"},
		{"tomorrow at 9am UTC+2", "2026-08-06T07:00:00Z"},
		{"tomorrow at 9am GMT-3:30", "2026-08-06T12:30:00Z"},
		{"tomorrow at 9am+02:00", "2026-08-06T07:00:00Z"},
		// In Kiritimati it is already Thursday, so tomorrow is Friday.
		{"tomorrow at 9am Pacific/Kiritimati", "2026-08-06T19:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			t.Parallel()
			got, err := Parse(tt.in, wednesday)
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Format(time.RFC3339Nano); s != tt.want {
				t.Errorf("Parse(%q) = %s, want %s", tt.in, s, tt.want)
			}
		})
	}
}

// TestParseOnOtherDays tests phrases whose meaning depends on the weekday or the season.
func TestParseOnOtherDays(t *testing.T) {
	t.Parallel()
	tests := []struct{ now, in, want string }{
		{"2026-08-08T10:00:00Z", "next Sunday at 9am", "2026-08-16T09:00:00Z"}, // Now is a Saturday; weeks begin on Monday.
		{"2026-08-08T10:00:00Z", "Sunday at 9am", "2026-08-09T09:00:00Z"},
		{"2026-08-09T10:00:00Z", "next Sunday at 9am", "2026-08-16T09:00:00Z"}, // Sunday.
		{"2026-08-09T10:00:00Z", "next Monday at 9am", "2026-08-10T09:00:00Z"},
		{"2026-08-10T10:00:00Z", "next Monday at 9am", "2026-08-17T09:00:00Z"}, // Monday.
		{"2026-12-31T23:00:00Z", "tomorrow at 9am", "2027-01-01T09:00:00Z"},
		{"2026-12-31T23:00:00Z", "tomorrow at 9am ET", "2027-01-01T14:00:00Z"},
		{"2027-01-01T03:00:00Z", "today at 11pm ET", "2027-01-01T04:00:00Z"}, // now it is still 31 December in New York
		{"2028-02-28T12:00:00Z", "tomorrow at noon", "2028-02-29T12:00:00Z"},
		{"2026-01-05T12:00:00Z", "tomorrow at 9am ET", "2026-01-06T14:00:00Z"},
		{"2026-01-05T12:00:00Z", "tomorrow at 9am EDT", "2026-01-06T13:00:00Z"},

		// In New York, clocks go forward on 8 March 2026 at 2:00, and back on 1 November at 2:00.
		{"2026-03-07T12:00:00Z", "tomorrow at 1:59am ET", "2026-03-08T06:59:00Z"},
		{"2026-03-07T12:00:00Z", "tomorrow at 2:30am ET", "2026-03-08T07:30:00Z"}, // 2:30 is skipped and becomes 3:30
		{"2026-03-07T12:00:00Z", "tomorrow at 3am ET", "2026-03-08T07:00:00Z"},
		{"2026-03-07T12:00:00Z", "tomorrow at 9am ET", "2026-03-08T13:00:00Z"},
		{"2026-03-07T12:00:00Z", "in 1 day", "2026-03-08T12:00:00Z"},
		{"2026-10-31T12:00:00Z", "tomorrow at 1:30am ET", "2026-11-01T05:30:00Z"}, // first of the two 1:30s that night
		{"2026-10-31T12:00:00Z", "tomorrow at 2am ET", "2026-11-01T07:00:00Z"},
		{"2026-10-31T12:00:00Z", "tomorrow at 1:30am EST", "2026-11-01T06:30:00Z"},
		// Clocks go forward in Berlin on 29 March, and on Lord Howe Island by half an hour on 4 October.
		{"2026-03-28T12:00:00Z", "2026-03-29 at 2:30 Europe/Berlin", "2026-03-29T01:30:00Z"},
		{"2026-10-03T00:00:00Z", "2026-10-04 at 2:15am Australia/Lord_Howe", "2026-10-03T15:45:00Z"},
		// Samoa skipped 30 December 2011.
		{"2011-12-01T00:00:00Z", "2011-12-30 at noon Pacific/Apia", "2011-12-30T22:00:00Z"},
	}
	for _, tt := range tests {
		t.Run(tt.now+" "+tt.in, func(t *testing.T) {
			t.Parallel()
			now, err := time.Parse(time.RFC3339, tt.now)
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(tt.in, now)
			if err != nil {
				t.Fatal(err)
			}
			if s := got.Format(time.RFC3339); s != tt.want {
				t.Errorf("Parse(%q) on %s = %s, want %s", tt.in, now.Format("Mon 2 Jan"), s, tt.want)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	texts := []string{
		"", " ", "now", "soon", "later today", "tomorrow", "today", "Friday", "next Friday", "next week", "yesterday at 9am",
		"in", "in 5", "in minutes", "in five minutes", "in -5 minutes", "in 1.5 hours", "in 5 fortnights", "in 1 month",
		"in 5 minutes please",
		"in 5 minutes at 9am", "in 2 hours ET", "in 99999999999999999999 seconds", "in 9999999 weeks", "in and 5 minutes",
		"in 5 minutes and",
		"at", "at 9am sharp", "9", "tomorrow 9", "tomorrow at", "tomorrow at 25:00", "tomorrow at 24:00", "tomorrow at 13pm",
		"tomorrow at 0am",
		"tomorrow at 9:60", "tomorrow at 9:5", "tomorrow at 9:00:60", "tomorrow at 009:00", "tomorrow at 9am 5pm",
		"tomorrow at noon pm",
		"tomorrow at 9am tomorrow", "tomorrow tomorrow at 9am", "tomorrow at 9am ET PT", "tomorrow at 9am XYZ",
		"tomorrow at 9am IST",
		"tomorrow at 9am Europe/Atlantis", "tomorrow at 9am ../etc/passwd", "tomorrow at 9am right/Europe/Berlin",
		"tomorrow at 9am America/Argentina",
		"tomorrow at 9am Local", "tomorrow at 9am +25:00", "tomorrow at 9am +05:60", "tomorrow at 9am +",
		"on tomorrow at 9am", "next 2026-08-06 at 9am", "next tomorrow at 9am", "next next Friday at 9am",
		"2026-02-30", "2026-02-29", "2026-13-01", "2026-00-10", "2026-08-00", "2026-8-6", "26-08-06", "20260806",
		"2026/08/06", "06.08.2026",
		"2026-08-06T", "2026-08-06T9:00Z", "2026-08-06T09Z", "2026-08-06T09:00pm", "2026-08-06T25:00:00Z",
		"2026-08-06T24:00:00Z",
		"2026-08-06T09:60:00Z", "2026-08-06T09:00:60Z", "2026-08-06T09:00:00.Z", "2026-08-06T09:00:00.1234567890Z",
		"2026-08-06T09:00:00+24:00",
		"2026-08-06T09:00:00+2", "2026-08-06T09:00:00ZZ", "2026-08-06T09:00:00Z extra", "2026-08-06Z", "2026-08-06 at",
		"at 2026-08-06", "2026-08-06 ET",
		"2026-08-06 2026-08-06", "+2026-08-06", "1786000000", "Thu, 06 Aug 2026 09:00:00 GMT", "tomorrow at 9am\x00", "\xff",
		strings.Repeat("in ", 100),
	}
	for _, text := range texts {
		got, err := Parse(text, wednesday)
		if err == nil {
			t.Errorf("Parse(%q) = %s, want an error", text, got)
			continue
		}
		if msg := err.Error(); !strings.Contains(msg, "ISO 8601") || !strings.Contains(msg, "in 2 hours") || len(msg) > 1000 {
			t.Errorf("Parse(%q): the error does not show the forms: %s", text, msg)
		}
	}
}

func TestDuration(t *testing.T) {
	t.Parallel()
	tests := map[string]time.Duration{
		"10m": 10 * time.Minute, "2 hours": 2 * time.Hour, "1 day": 24 * time.Hour, "1h 30m": 90 * time.Minute,
		"1h30m":         90 * time.Minute,
		"1 day 2 hours": 26 * time.Hour, "1 day, 2 hours": 26 * time.Hour, "1 day and 2 hours": 26 * time.Hour,
		"1 Week": 168 * time.Hour,
		"30 sec": 30 * time.Second, "30s": 30 * time.Second, "1 second": time.Second, "5 MIN": 5 * time.Minute,
		" 5  mins ": 5 * time.Minute,
		"2hrs":      2 * time.Hour, "1 w 2 d 3 h 4 m 5 s": 9*24*time.Hour + 3*time.Hour + 4*time.Minute + 5*time.Second,
		"an hour":    time.Hour,
		"90 minutes": 90 * time.Minute, "0 s": 0, "007 days": 7 * 24 * time.Hour, "3650 days": MaxDuration,
	}
	for in, want := range tests {
		if got, err := Duration(in); err != nil || got != want {
			t.Errorf("Duration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", " ", "10", "m", "10 x", "-10m", "+10m", "1.5h", "1,5h", "1h 1h", "30m 1h", "1m 2m",
		"PT10M", "P1D", "P1DT2H", "1 month",
		"10m!", "and", "and 10m", "10m and", "1h and and 5m", "1h 5", "ten minutes", "in 10m", "3651 days", "522 weeks",
		"9223372036854775807s", "99999999999999999999s",
		"3650 days 1 s", "1h\x00", "١h", strings.Repeat("1h", 200)} {
		if got, err := Duration(in); err == nil || !strings.Contains(err.Error(), "10 minutes") {
			t.Errorf("Duration(%q) = %v, %v; want an error that shows the forms", in, got, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"in 2 hours", "tomorrow at 9am", "Friday at 3pm ET", "next mon 15:04 Europe/Berlin",
		"2026-08-06T09:00:00.5+02:00",
		"2026-01-02 15:04:05+00", "2026-08-06", "noon", "at 9am tomorrow UTC+2", "in 1h30m"} {
		f.Add(s, int64(1_786_000_000))
	}
	f.Fuzz(func(t *testing.T, s string, unix int64) {
		now := time.Unix(unix%(1<<33), 0)
		got, err := Parse(s, now)
		again, err2 := Parse(s, now.In(time.FixedZone("", 3600)))
		if !got.Equal(again) || (err == nil) != (err2 == nil) {
			t.Fatalf("Parse(%q) = %v, %v, and again %v, %v", s, got, err, again, err2)
		}
		if err != nil {
			return
		}
		if got.Location() != time.UTC {
			t.Errorf("Parse(%q) is in %v", s, got.Location())
		}
		if twice, err := Parse(strings.ToUpper(" "+s+" "), now); err == nil && !twice.Equal(got) {
			t.Errorf("Parse(%q) = %v, in capitals %v", s, got, twice)
		}
		if y := got.Year(); y >= 0 && y <= 9999 {
			if back, err := Parse(got.Format(time.RFC3339Nano), now); err != nil || !back.Equal(got) {
				t.Errorf("Parse(%q) = %v, which reads back as %v, %v", s, got, back, err)
			}
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, s := range []string{"10m", "1 day 2 hours", "1h30m", "an hour", "3650 days", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		d, err := Duration(s)
		if d < 0 || d > MaxDuration || err != nil && d != 0 {
			t.Fatalf("Duration(%q) = %v, %v", s, d, err)
		}
		if in, inErr := Parse("in "+s, wednesday); err == nil && len(s) < maxText-3 &&
			(inErr != nil || in.Sub(wednesday) != d) {
			t.Errorf("Duration(%q) = %v, but in that time is %v, %v", s, d, in, inErr)
		}
	})
}
