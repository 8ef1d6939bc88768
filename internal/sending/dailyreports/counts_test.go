package dailyreports

import (
	"errors"
	"fmt"
	"testing"
)

// The memory for counts is limited, even if each count is about another domain and the database is away for long.
// Counts that do not fit are lost, and their number is known. The others are kept.
func TestMemoryIsLimited(t *testing.T) {
	t.Parallel()
	const limit = 100
	c := NewCounts[string](limit, func(newer, older int) int { return newer + older })
	domains, added := 0, 0
	add := func(n int) {
		for range n {
			domains++
			added++
			c.Add(DayDomain{1, fmt.Sprintf("d%d.example", domains)}, "row", func(a *int) { *a++ })
		}
	}
	away, lost := errors.New("the database is away"), 0
	for range 3 {
		add(limit / 2)
		err := c.Flush(func(_ Entries[string, int], n int) error {
			lost += n
			add(limit) // while the entries are being stored
			domains = 0
			add(1)
			return away
		})
		if !errors.Is(err, away) || len(c.pending) > limit || c.size > limit {
			t.Errorf("%v; %d domains, %d rows", err, len(c.pending), c.size)
		}
	}
	select {
	case <-c.full:
	default:
		t.Error("the counts are not stored early")
	}
	for range 2 {
		kept := 0
		if err := c.Flush(func(all Entries[string, int], n int) error {
			lost += n
			for _, e := range all {
				kept += e.About
				if int(e.Rows["row"]) != e.About {
					t.Errorf("%+v", e)
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if added -= kept; added != lost {
			t.Errorf("%d counts are missing, and %d are reported as lost", added, lost)
		}
		add(limit)
		added, lost = limit, 0
	}
}
