package metrics_test

import (
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// Counts stay the same when the events of old emails are dropped, whichever time the events have. Later events are
// counted too: those of the last day, which are recounted, and older ones.
func TestCountsOutliveDrops(t *testing.T) {
	d := dbtest.Postgres(t)
	w, now := newFixture(t, d), time.Now().Truncate(time.Hour)
	at := func(i int, typ events.Type, ago time.Duration) events.Event {
		e := events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[i].id, DomainID: w.emails[i].domain, Type: typ,
			Recipient: w.emails[i].to[0], At: now.Add(-ago)}
		if typ == events.EmailOpened {
			e.Data = &events.Open{}
		}
		return e
	}
	const hour = time.Hour
	w.happen(t, at(0, events.EmailDelivered, 80*hour), at(1, events.EmailDelivered, 80*hour),
		at(2, events.EmailDelivered, 79*hour), at(0, events.EmailOpened, 50*hour), at(1, events.EmailOpened, 3*hour),
		at(3, events.EmailDelivered, 2*hour))
	roll := func() {
		t.Helper()
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	roll()
	q := metrics.Query{From: now.Add(-100 * hour), To: now.Add(hour),
		ByPeriod: func(at time.Time) string { return at.UTC().Format(time.RFC3339) }}
	count := func() []metrics.Count {
		t.Helper()
		all, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
		if err != nil {
			t.Fatal(err)
		}
		return sorted(all)
	}
	before := count()
	if len(before) != 5 {
		t.Fatalf("%+v", before)
	}
	w.happen(t, at(2, events.EmailOpened, 0)) // not counted yet
	before = append(before, metrics.Count{Period: now.UTC().Format(time.RFC3339), Type: "opened", Events: 1,
		Recipients: 1, People: 1})
	var ids []string
	for _, e := range w.emails[:3] {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	w.update(t, func(tx *db.Tx) error {
		kept, err := w.s.Release(t.Context(), tx, ids[0], ids[2], nil)
		if err != nil {
			return err
		}
		for _, x := range ids[:2] { // the range excludes its end
			if !slices.Contains(kept, x) {
				tx.Queue(t.Context(), `DELETE FROM email_events WHERE email_id = $1`, db.ID(x))
			}
		}
		return nil
	})
	if diff := gocmp.Diff(sorted(before), count()); diff != "" {
		t.Errorf("after the drop: %s", diff)
	}
	w.happen(t, at(4, events.EmailDelivered, 80*hour), at(5, events.EmailDelivered, 3*hour))
	for i := range before {
		if before[i].Type == "delivered" && before[i].Period == now.Add(-80*hour).UTC().Format(time.RFC3339) {
			before[i].Events++
			before[i].Recipients++
		}
	}
	before = append(before, metrics.Count{Period: now.Add(-3 * hour).UTC().Format(time.RFC3339), Type: "delivered",
		Events: 1, Recipients: 1})
	for range 2 {
		if diff := gocmp.Diff(sorted(before), count()); diff != "" {
			t.Errorf("after late events: %s", diff)
		}
		roll()
	}
}
