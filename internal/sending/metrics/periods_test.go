package metrics

import (
	"fmt"
	"testing"
	"time"
)

// The slots of a span that have the same cell are in the same period, in every zone and around every change of its
// offset.
func TestCellsOf(t *testing.T) {
	t.Parallel()
	us := slot.Microseconds()
	for _, c := range []struct {
		zone, at    string
		hours, days int64 // length of the cells of a span around the time
	}{
		{"UTC", "2026-10-25", 4, 96},
		{"Europe/Berlin", "2026-06-14", 4, 96},
		{"Europe/Berlin", "2026-10-25", 4, 4},
		{"Europe/Berlin", "2026-03-29", 4, 4},
		{"America/New_York", "2025-11-02", 4, 4},
		{"Asia/Kolkata", "2026-10-25", 4, 96},
		{"Asia/Kathmandu", "2026-10-25", 4, 96},
		{"Australia/Lord_Howe", "2026-04-05", 2, 2},
		{"America/Sao_Paulo", "2018-11-04", 4, 4}, // has no midnight
		{"Pacific/Apia", "2011-12-30", 4, 96},     // has no such day
		{"Africa/Monrovia", "1972-01-07", 1, 1},   // an offset of 44 minutes and 30 seconds, and then of none
	} {
		t.Run(fmt.Sprint(c.zone, c.at), func(t *testing.T) {
			t.Parallel()
			zone, err := time.LoadLocation(c.zone)
			if err != nil {
				t.Fatal(err)
			}
			middle, err := time.Parse(time.DateOnly, c.at)
			if err != nil {
				t.Fatal(err)
			}
			for unit, layout := range map[Unit]string{Hours: "2006-01-02T15-0700", Days: time.DateOnly, Slots: time.RFC3339} {
				for from := middle.AddDate(0, 0, -3); from.Before(middle.AddDate(0, 0, 3)); from = from.Add(7 * slot) {
					to := from.Add(50 * time.Hour)
					cells := cellsOf(unit, zone, from, to)
					names := map[int64]string{}
					for at := down(from.UnixMicro()); at < up(to.UnixMicro()); at++ {
						name := time.UnixMicro(max(at*us, from.UnixMicro())).In(zone).Format(layout)
						cell := (at + cells.shift) / cells.length
						if names[cell] != "" && names[cell] != name {
							t.Fatalf("from %v, cells %+v: %s and %s are one cell", from, cells, names[cell], name)
						}
						names[cell] = name
					}
				}
				whole := cellsOf(unit, zone, middle.AddDate(0, 0, -3), middle.AddDate(0, 0, 3))
				if want := map[Unit]int64{Hours: c.hours, Days: c.days, Slots: 1}[unit]; whole.length != want {
					t.Errorf("unit %d: the cells have %d slots, want %d", unit, whole.length, want)
				}
			}
		})
	}
}

// A span of many changes is not followed to its end, and a span since long ago begins with the oldest events.
func TestCellsOfLongSpans(t *testing.T) {
	t.Parallel()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	if c := cellsOf(Days, zone, time.Unix(0, 0), time.Unix(0, 0).AddDate(9000, 0, 0)); c != (cells{length: 1}) {
		t.Errorf("nine thousand years have cells %+v", c)
	}
	if c := cellsOf(Days, time.UTC, time.Time{}, time.Now()); c != (cells{length: 96}) {
		t.Errorf("all days in UTC have cells %+v", c)
	}
}
