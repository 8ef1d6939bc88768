package webhooks

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestTellFull: a team is notified about its full endpoints at most once an hour. A notice is sent only if the last
// notice about at least one full endpoint is at least a day old. The notice names at most ten endpoints.
func TestTellFull(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const hour = time.Hour
		for _, c := range []struct {
			name       string
			noticeAges []time.Duration // time since the last notice about each endpoint; 0 means that there was none
			full       []bool
			want       string // text in the notice, "" for no notice
		}{
			{"none is full", []time.Duration{0}, []bool{false}, ""},
			{"one is", []time.Duration{0}, []bool{true}, "u0"},
			{"told a moment ago", []time.Duration{hour / 2}, []bool{true}, ""},
			{"told of another a moment ago", []time.Duration{0, hour / 2}, []bool{true, false}, ""},
			{"told of it today", []time.Duration{2 * hour}, []bool{true}, ""},
			{"told of it yesterday", []time.Duration{25 * hour}, []bool{true}, "u0"},
			{"told of one of two today", []time.Duration{2 * hour, 0}, []bool{true, true}, "u0\n  u1"},
			{"told of the second of two today", []time.Duration{0, 2 * hour}, []bool{true, true}, "u0\n  u1"},
			{"told of one yesterday that is not full", []time.Duration{2 * hour, 25 * hour}, []bool{true, false}, ""},
			{"ten", make([]time.Duration, 10), many(10), "u9\n\nUntil"},
			{"eleven", make([]time.Duration, 11), many(11), "u9\n\nand 1 more.\n\nUntil"},
		} {
			var notice string
			s := &Service{p: Deps{DB: d, Notify: func(_ context.Context, _ *db.Tx, _, _, text string) error {
				notice = text
				return nil
			}}}
			var all []*Endpoint
			for i := range c.noticeAges {
				e := &Endpoint{ID: dbtest.ID(fmt.Sprint(i)), URL: fmt.Sprintf("u%d?key=secret", i), TeamID: dbtest.ID("team")}
				if c.full[i] {
					e.FullSince = d.Now()
				}
				if c.noticeAges[i] > 0 {
					e.fullNotified = d.Now().Add(-c.noticeAges[i])
				}
				all = append(all, e)
			}
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				return s.notifyFull(t.Context(), tx, dbtest.ID("team"),
					all)
			})
			if err != nil || (notice == "") != (c.want == "") || !strings.Contains(notice, c.want) ||
				strings.Contains(notice, "secret") {
				t.Errorf("%s: %v, %q", c.name, err, notice)
			}
		}
	})
}

func many(n int) (all []bool) {
	for range n {
		all = append(all, true)
	}
	return all
}

// TestOverfullUntilAQuarterHasGone: while an endpoint is full, limits count as exceeded until a quarter of each limit
// is free.
func TestOverfullUntilAQuarterHasGone(t *testing.T) {
	for _, c := range []struct {
		each int
		was  bool
		full int
	}{{100, false, 5}, {99, false, 0}, {99, true, 1}, {75, true, 1}, {74, true, 0}} {
		waiting := map[string]int{"a": c.each, "b": c.each, "c": c.each, "d": c.each, "e": c.each}
		if got := overfull(waiting, map[string]bool{"a": c.was}, 1000, 500); len(got) != c.full {
			t.Errorf("with %d each, full before %v: %v", c.each, c.was, got)
		}
	}
}
