package webhooks

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The number of concurrent attempts depends on the responses: few at first, the maximum for a fast endpoint, fewer for
// slower endpoints.
func TestAttemptsByAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		took    time.Duration
		success bool
		times   int
		want    int
	}{
		{0, true, 0, firstAttempts},
		{time.Millisecond, true, 1, perEndpoint},
		{quick, true, 1, perEndpoint},
		{4 * quick, true, 1, perEndpoint / 4},
		{time.Minute, true, 1, slowAttempts},
		{time.Millisecond, false, failingRow - 1, perEndpoint},
		{time.Millisecond, false, failingRow, failingLanes},
	} {
		h := &health{timeout: timeout}
		for range c.times {
			h.note("e", c.success, answer{took: c.took})
		}
		if n, again := h.limit("e"); n != c.want || !again.IsZero() {
			t.Errorf("%d answers after %v, success %v: %d attempts, again at %v; want %d", c.times, c.took, c.success, n, again,
				c.want)
		}
	}
}

// An endpoint that times out gets longer and longer pauses, with one attempt between pauses. The first response from an
// endpoint ends its pauses.
func TestSilentEndpointRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &health{timeout: timeout}
		silent := answer{late: true, took: timeout}
		for range firstAttempts {
			h.note("e", false, silent)
		}
		var rests []time.Duration
		for range 9 {
			n, again := h.limit("e")
			if n != 0 {
				t.Fatalf("after rests of %v: %d attempts", rests, n)
			}
			rests = append(rests, time.Until(again))
			time.Sleep(time.Until(again))
			if n, _ := h.limit("e"); n != 1 {
				t.Fatalf("after a rest: %d attempts", n)
			}
			h.note("e", false, silent)
		}
		if got := fmt.Sprint(rests); got != "[5s 10s 20s 40s 1m20s 2m40s 5m0s 5m0s 5m0s]" {
			t.Errorf("rests of %s", got)
		}
		h.note("e", true, answer{took: time.Millisecond})
		if n, _ := h.limit("e"); n != perEndpoint {
			t.Errorf("%d attempts when it answers again", n)
		}
	})
}

func TestOverfull(t *testing.T) {
	t.Parallel()
	all := func(n, each int) map[string]int {
		m := map[string]int{"quiet": 1}
		for i := range n {
			m[fmt.Sprint(i)] = each
		}
		return m
	}
	for _, c := range []struct {
		name    string
		waiting map[string]int
		was     map[string]bool
		full    int
	}{
		{"nothing waits", nil, nil, 0},
		{"one below its bound", map[string]int{"a": 99, "b": 1}, nil, 0},
		{"one at its bound", map[string]int{"a": 100, "b": 1}, nil, 1},
		{"one that was full and has a little less", map[string]int{"a": 76}, map[string]bool{"a": true}, 1},
		{"one that was full and has a quarter less", map[string]int{"a": 74}, map[string]bool{"a": true}, 0},
		{"many that are full together", all(50, 10), nil, 50},
		{"many that are not", all(49, 10), nil, 0},
		{"another, while one is full", map[string]int{"a": 100, "b": 76}, map[string]bool{"a": true}, 1},
	} {
		got := overfull(c.waiting, c.was, 100, 500)
		if len(got) != c.full || got["quiet"] {
			t.Errorf("%s: %v are full, want %d", c.name, got, c.full)
		}
	}
}

// Waiting jobs are counted using an index, without reading the jobs.
func TestCountingByTheIndex(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	rows, err := d.Query(t.Context(), `EXPLAIN QUERY PLAN `+countWaiting, Kind, lane(dbtest.ID("team"), ""),
		lane(dbtest.ID("team"), "g"))
	plan, err := db.Collect(rows, err, func(r db.Row) (text string, err error) {
		var id, parent, unused int
		err = r.Scan(&id, &parent, &unused, &text)
		return text, err
	})
	if err != nil || len(plan) != 1 ||
		!strings.Contains(plan[0], "COVERING INDEX jobs_due (kind=? AND lane>? AND lane<?)") {
		t.Errorf("%q, %v", plan, err)
	}
}

// Lanes from older releases contain only the endpoint id, and are still assigned to their endpoint.
func TestLanes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lane, team, endpoint string }{{lane("t1", "e1"), "t1", "e1"}, {"e1", "e1", "e1"}} {
		if laneTeam(c.lane) != c.team || laneEndpoint(c.lane) != c.endpoint {
			t.Errorf("%s is of team %s and endpoint %s", c.lane, laneTeam(c.lane), laneEndpoint(c.lane))
		}
	}
}
