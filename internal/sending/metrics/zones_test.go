package metrics_test

import (
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// A breakdown by hours or days of a zone has the same counts as one whose quarter hours are added up one by one, also
// at the hours and days in which the zone's offset changes. Counters, events that are not in counters yet, and received
// emails are grouped alike. The statement reads only the span's rows of the team.
func TestBreakdownInZones(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		w := newFixture(t, d)
		changes := map[string]string{"UTC": "2026-06-15T00:00:00Z", "Asia/Kathmandu": "2026-06-15T18:15:00Z",
			"Europe/Berlin": "2026-03-29T01:00:00Z", "America/New_York": "2025-11-02T06:00:00Z",
			"Australia/Lord_Howe": "2026-04-04T15:00:00Z"}
		for _, at := range changes {
			w.happen(t, w.around(t, at)...)
		}
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, at := range changes { // late events, whose quarter hours are counted anew
			w.happen(t, w.around(t, at)[:5]...)
		}
		for name, text := range changes {
			zone, err := time.LoadLocation(name)
			if err != nil {
				t.Fatal(err)
			}
			at, err := time.Parse(time.RFC3339, text)
			if err != nil {
				t.Fatal(err)
			}
			for _, from := range []time.Time{at.Add(-15 * time.Hour), at.Add(-time.Hour), at, at.Add(7 * time.Minute)} {
				for unit, layout := range map[metrics.Unit]string{metrics.Hours: "2006-01-02T15-0700",
					metrics.Days: time.DateOnly} {
					q := metrics.Query{From: from, To: at.Add(13 * time.Hour), PeriodsOf: unit, Zone: zone, ByDomain: true,
						ByPeriod: func(t time.Time) string { return t.In(zone).Format(layout) }}
					trace.Take()
					got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
					if err != nil {
						t.Fatal(err)
					}
					asked := trace.Take()
					q.PeriodsOf = metrics.Slots
					before, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
					if err != nil {
						t.Fatal(err)
					}
					if diff := gocmp.Diff(sorted(before), sorted(got)); diff != "" || len(got) == 0 {
						t.Errorf("%s since %v: %s", name, from, diff)
					}
					if diff := gocmp.Diff(w.recount(q), got); diff != "" {
						t.Errorf("%s since %v: %s", name, from, diff)
					}
					checkReads(t, trace, asked)
				}
			}
		}
	})
}

// A breakdown has a maximum number of rows, before and after its events are in counters. A query that would have more
// fails; it does not leave rows out.
func TestRowsOfBreakdowns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w := newFixture(t, d)
		w.happen(t, w.around(t, "2026-06-15T00:00:00Z")...)
		at := time.Date(2026, 6, 15, 0, 0, 0, 0, time.UTC)
		q := metrics.Query{From: at.Add(-time.Hour), To: at.Add(time.Hour), ByDomain: true,
			ByPeriod: func(t time.Time) string { return t.Format(time.RFC3339) }}
		for _, state := range []string{"events", "counters"} {
			q.MaxRows = 0
			all, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
			if err != nil || len(all) < 3 {
				t.Fatalf("%s: %d rows, %v", state, len(all), err)
			}
			q.MaxRows = len(all) - 1
			if _, err := w.s.Count(t.Context(), dbtest.ID("team"), q); fault.KindOf(err) != fault.Invalid {
				t.Errorf("%s: %v for more rows than are allowed", state, err)
			}
			q.MaxRows = len(all)
			if some, err := w.s.Count(t.Context(), dbtest.ID("team"), q); err != nil || len(some) != len(all) {
				t.Errorf("%s: %d rows, %v; want %d", state, len(some), err, len(all))
			}
			if err := w.s.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// around returns events at the start of each quarter hour around a time, and just before it.
func (w *fixture) around(t *testing.T, text string) (all []events.Event) {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 260 {
		e := w.emails[i%len(w.emails)]
		slot := at.Add(time.Duration(i/2-65) * 15 * time.Minute)
		all = append(all, events.Event{TeamID: dbtest.ID("team"), EmailID: e.id, DomainID: e.domain,
			BroadcastID: e.broadcast, Recipient: e.to[0], Type: events.EmailDelivered,
			At: slot.Add(-time.Duration(i%2) * time.Microsecond)})
	}
	return all
}

// checkReads checks that statements for counters find the rows of a span in the order of the key.
func checkReads(t *testing.T, trace *dbtest.Trace, all []db.Statement) {
	t.Helper()
	read := false
	for _, s := range all {
		if !strings.Contains(s.SQL, "FROM email_counts c") {
			continue
		}
		read = true
		plan := trace.Plan(t, s)
		if !strings.Contains(plan, "(team_id=? AND slot>? AND slot<?)") &&
			!strings.Contains(plan, "Index Cond: ((team_id = ") {
			t.Errorf("%s\n%s", s.SQL, plan)
		}
	}
	if !read {
		t.Error("no statement reads counters")
	}
}
