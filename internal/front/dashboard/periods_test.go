package dashboard

import (
	"testing"
	"time"
	_ "time/tzdata" // the tests also run on systems without a time zone database
)

func TestSpans(t *testing.T) {
	now := time.Date(2026, 11, 26, 14, 31, 0, 0, time.UTC) // a Thursday
	for _, c := range []struct {
		span        int
		by, first   string
		n           int
		label, full string // of the newest period
	}{
		{0, "hour", "2026-11-25T15:00:00Z", 24, "14:00", "26 Nov 14:00"},
		{1, "day", "2026-11-20T00:00:00Z", 7, "26", "26 Nov"},
		{2, "day", "2026-10-28T00:00:00Z", 30, "26", "26 Nov"},
		{2, "week", "2026-10-26T00:00:00Z", 5, "23 Nov", "23 Nov to 29 Nov"},
		{3, "week", "2026-08-24T00:00:00Z", 14, "23 Nov", "23 Nov to 29 Nov"},
	} {
		all := metricSpans[c.span].starts(now, c.by)
		label, full := axisLabels(all[len(all)-1], all[len(all)-2], c.by)
		if all[0].Format(time.RFC3339) != c.first || len(all) != c.n || label != c.label || full != c.full {
			t.Errorf("%s by %s: %d periods from %s; the last is %q, %q", metricSpans[c.span].Label, c.by, len(all),
				all[0].Format(time.RFC3339), label, full)
		}
	}
}

func TestPeriodOf(t *testing.T) {
	for in, want := range map[string]string{"2026-11-16": "16 Nov 2026, UTC",
		"2026-11-16T09": "16 Nov 09:00, UTC", "2026-11-16_2026-11-22": "16 Nov to 22 Nov 2026, UTC",
		"2026-11-16@Asia/Kathmandu": "16 Nov 2026, Asia/Kathmandu", "2026-11-16@Local": "", "2026-11-16@": "",
		"2026-10-25T01:00Z@Europe/Berlin":     "25 Oct 02:00, Europe/Berlin",
		"2026-10-25_2026-10-25@Europe/Berlin": "25 Oct 2026, Europe/Berlin", "7d": "", "": "",
		"2026-11-22_2026-11-16": "", "2026-13-01": ""} {
		from, to, ok := periodOf(in)
		got := ""
		if ok {
			got = periodLabel(from, to)
		}
		if got != want {
			t.Errorf("%q is %q, want %q", in, got, want)
		}
	}
}

// Every quarter hour belongs to exactly one period, also when the clocks change. The day on which they change has 23 or
// 25 hours.
func TestPeriodsInZones(t *testing.T) {
	for _, c := range []struct {
		zone, day string
		quarters  int // of the day
	}{
		{"UTC", "2026-03-29", 96},
		{"Europe/Berlin", "2026-03-29", 92},
		{"Europe/Berlin", "2026-10-25", 100},
		{"America/New_York", "2026-03-08", 92},
		{"America/New_York", "2026-11-01", 100},
		{"America/Havana", "2026-03-08", 92},  // 0:00 is skipped
		{"America/Havana", "2026-11-01", 100}, // the time from 0:00 to 1:00 is shown twice
		{"America/Santiago", "2026-04-04", 100},
		{"America/Santiago", "2026-09-06", 92},
		{"Australia/Lord_Howe", "2026-04-05", 98}, // half an hour
		{"Australia/Lord_Howe", "2026-10-04", 94},
		{"Asia/Kathmandu", "2026-03-29", 96},
		{"Pacific/Apia", "2011-12-29", 96}, // the next day is skipped
	} {
		zone, err := time.LoadLocation(c.zone)
		if err != nil {
			t.Fatal(err)
		}
		day, err := time.Parse(time.DateOnly, c.day)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range metricSpans[:2] {
			now := day.Add(72 * time.Hour).In(zone)
			if s.Value == "24h" {
				now = day.Add(31 * time.Hour).In(zone)
			}
			for _, by := range s.By {
				starts := s.starts(now, by)
				quarters := map[string]int{}
				for q := starts[0]; !q.After(now); q = q.Add(15 * time.Minute) {
					quarters[startOf(q, by).Format(time.RFC3339)]++
				}
				if len(quarters) != len(starts) {
					t.Errorf("%s around %s by %s: %d periods, want those of %d starts", c.zone, c.day, by, len(quarters),
						len(starts))
				}
				for i, start := range starts {
					n := quarters[start.Format(time.RFC3339)]
					if n == 0 {
						t.Errorf("%s around %s by %s: no quarter hour belongs to %v", c.zone, c.day, by, start)
					}
					if by == "day" && start.Format(time.DateOnly) == c.day && n != c.quarters {
						t.Errorf("%s has %d quarter hours in %s, want %d", c.day, n, c.zone, c.quarters)
					}
					from, to, ok := periodOf(periodName(start, by))
					if !ok || !from.Equal(start) || i+1 < len(starts) && !to.Equal(starts[i+1]) {
						t.Errorf("%s by %s: %s is from %v to %v, want from %v", c.zone, by, periodName(start, by), from, to, start)
					}
				}
			}
		}
	}
}
