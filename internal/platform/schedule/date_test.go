package schedule

import (
	"testing"
	"time"
)

// ParseDate accepts dates with and without a time and a time zone, and returns the same instant for equivalent forms.
func TestParseDate(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"2026-08-05":                 "2026-08-05T07:30:00Z", // 09:30 in Berlin
		" 2026-08-05 ":               "2026-08-05T07:30:00Z",
		"2026-08-05T15:04:05Z":       "2026-08-05T15:04:05Z",
		"2026-08-05T15:04Z":          "2026-08-05T15:04:00Z",
		"2026-08-05T15:04:05":        "2026-08-05T13:04:05Z",
		"2026-08-05T15:04":           "2026-08-05T13:04:00Z",
		"2026-08-05 15:04:05":        "2026-08-05T13:04:05Z",
		"2026-08-05 15:04":           "2026-08-05T13:04:00Z",
		"2026-08-05T15:04:05.5+0230": "2026-08-05T12:34:05.5Z",
		"2026-08-05 12:00:00.25+00":  "2026-08-05T12:00:00.25Z",
		"2026-08-05T15:04-07:00":     "2026-08-05T22:04:00Z",
		"2026-10-25T02:30":           "2026-10-25T00:30:00Z", // the first of two
		"2026-03-29T02:30":           "2026-03-29T01:30:00Z", // skipped
		"":                           "", "2026-02-30": "", "2026-8-5": "", "tomorrow": "", "05.08.2026": "",
		"2026-08-05T25:00": "", "2026-08-05T15": "", "2026-08-05T15:04:05 Berlin": "",
	} {
		got := ""
		if d, ok := ParseDate(text); ok {
			got = d.In(berlin, TimeOfDay{9, 30}).Format(time.RFC3339Nano)
		}
		if got != want {
			t.Errorf("%q is %q and not %q", text, got, want)
		}
	}
}
