package metrics_test

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// clicks returns n clicks in one email, spread over the given number of quarter hours that end at the given time.
func (w *fixture) clicks(n, quarters int, last time.Time) []events.Event {
	all := make([]events.Event, n)
	for i := range all {
		at := last.Add(-time.Duration(i%quarters) * 15 * time.Minute).Add(time.Duration(i) * time.Microsecond)
		all[i] = events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[0].id, DomainID: w.emails[0].domain,
			Type: events.EmailClicked, Recipient: w.emails[0].to[0], At: at, Data: &events.Click{}}
	}
	return all
}

// check compares the results of queries with a simple recount.
func (w *fixture) check(t *testing.T, now time.Time) {
	t.Helper()
	q := metrics.Query{From: now.Add(-48 * time.Hour), To: now, ByDomain: true,
		ByPeriod: func(at time.Time) string { return at.UTC().Format(time.RFC3339) }}
	got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
	if err != nil {
		t.Fatal(err)
	}
	q.ByPeriod = func(at time.Time) string { return at.Truncate(15 * time.Minute).UTC().Format(time.RFC3339) }
	if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
		t.Error(diff)
	}
}

// left returns the number of remaining late entries.
func (w *fixture) left(t *testing.T) (n int) {
	t.Helper()
	if err := w.d.QueryRow(t.Context(), `SELECT COUNT(*) FROM email_counts_late`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// RollUp recounts a quarter hour only once and in few transactions, however many late events it has, even if all of
// them concern one email.
func TestLateEventsAreCountedOnce(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w, now := newFixture(t, d), time.Now()
		last := now.Add(-2 * time.Hour).Truncate(15 * time.Minute)
		w.happen(t, w.clicks(1, 1, last)...)
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct{ late, quarters, writes, deletes int }{{1, 1, 2, 1}, {1500, 1, 3, 2}, {1500, 60, 4, 2}} {
			w.happen(t, w.clicks(c.late, c.quarters, last)...)
			if n := w.left(t); n != c.late {
				t.Errorf("%d of %d events are late", n, c.late)
			}
			trace.Take()
			if err := w.s.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			counted, writes, deletes := 0, 0, 0
			for _, s := range trace.Take() {
				switch {
				case strings.Contains(s.SQL, "FROM email_events e WHERE") && strings.Contains(s.SQL, "GROUP BY"):
					counted++
				case strings.Contains(s.SQL, "UPDATE email_counts_until"):
					writes++
				case strings.Contains(s.SQL, "DELETE FROM email_counts_late"):
					deletes++
				}
			}
			if counted != c.quarters || writes != c.writes || deletes != c.deletes {
				t.Errorf("%d late events of %d quarters are counted by %d queries in %d transactions, "+
					"of which %d delete them", c.late, c.quarters, counted, writes, deletes)
			}
			if n := w.left(t); n != 0 {
				t.Errorf("%d late entries are left", n)
			}
			w.check(t, now)
		}
	})
}

// If RollUp fails at any statement, counts remain correct, and the next RollUp counts the remaining events.
func TestRollFails(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w, now := newFixture(t, d), time.Now()
		last := now.Add(-2 * time.Hour).Truncate(15 * time.Minute)
		w.happen(t, w.clicks(1, 1, last)...)
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		failed := trace.EachBroken(t, func() {
			if w.left(t) == 0 { // late entries that remain are counted by the next RollUp
				w.happen(t, w.clicks(3, 3, last)...)
			}
		}, func() error { return w.s.RollUp(t.Context()) }, func(err error) {
			if n := w.left(t); err == nil && n > 0 {
				t.Errorf("%d late entries are left", n)
			}
			w.check(t, now)
		})
		if failed < 8 {
			t.Errorf("it failed %d times", failed)
		}
	})
}

// If another node records a late event while this node processes earlier late events, the new event is also counted.
func TestLateForAnotherNode(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w, now := newFixture(t, d), time.Now()
		roll := func() {
			t.Helper()
			if err := w.s.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.happen(t, w.clicks(1, 1, now.Add(-10*time.Hour))...)
		roll()
		at := now.Add(-2 * time.Hour)
		w.happen(t, w.clicks(1, 1, at)...)
		trace.Before("SELECT id FROM email_counts_late", func() {
			roll()
			w.happen(t, w.clicks(1, 1, at.Add(time.Minute))...)
		})
		roll()
		if n := w.left(t); n != 1 {
			t.Errorf("there are %d late entries", n)
		}
		w.check(t, now)
		roll()
		if n := w.left(t); n != 0 {
			t.Errorf("%d late entries are left", n)
		}
		w.check(t, now)
	})
}
