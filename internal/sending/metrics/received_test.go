package metrics_test

import (
	"slices"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// Received emails are counted by their rows, like events: before and after RollUp, by every dimension, and after they
// were deleted. One that is not counted yet may not be deleted.
func TestReceivedEmailsAreCounted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, now := newFixture(t, d), time.Now().Truncate(time.Microsecond)
		var ids []string
		for i, ago := range []time.Duration{80 * time.Hour, 80 * time.Hour, 79 * time.Hour, 3 * time.Hour, time.Hour, 0} {
			ids = append(ids, id.New())
			w.happen(t, events.Event{TeamID: dbtest.ID("team"), DomainID: []string{w.emails[i].domain, ""}[i%2],
				Type: events.EmailReceived, Data: &events.Received{ID: ids[i]}, At: now.Add(-ago)})
		}
		w.happen(t, events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[1].id, DomainID: w.emails[1].domain,
			Type: events.EmailSent, At: now.Add(-2 * time.Hour)})
		queries := []metrics.Query{{}, {ByDomain: true}, {ByEmail: true}, {DomainIDs: []string{w.emails[0].domain}},
			{EmailIDs: []string{ids[0], ids[3], w.emails[1].id}, ByEmail: true, ByDomain: true},
			{BroadcastIDs: []string{w.emails[0].broadcast}},
			{ByPeriod: func(at time.Time) string { return at.UTC().Format("02 15") }, ByBroadcast: true}}
		check := func(when string) {
			t.Helper()
			for i, q := range queries {
				q.From, q.To = now.Add(-100*time.Hour), now.Add(time.Hour)
				got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
					t.Errorf("%s, query %d: %s", when, i, diff)
				}
			}
			other, err := w.s.Count(t.Context(), dbtest.ID("other"), metrics.Query{From: now.Add(-100 * time.Hour),
				To: now.Add(time.Hour)})
			if err != nil || len(other) > 0 {
				t.Errorf("%s, another team has %+v, %v", when, other, err)
			}
		}
		remove := func(want ...string) {
			t.Helper()
			w.update(t, func(tx *db.Tx) error {
				gone, err := metrics.RetainReceived(t.Context(), tx, dbtest.ID("team"), ids)
				if !slices.Equal(gone, want) {
					t.Errorf("%v may be deleted, want %v", gone, want)
				}
				for _, x := range gone {
					w.gone[x] = true
				}
				tx.Queue(t.Context(), `DELETE FROM received_emails WHERE id = ANY($1)`, db.IDs(gone))
				return err
			})
		}
		check("before they are counted")
		remove()
		for range 2 {
			if err := w.s.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
			check("when they are counted")
		}
		var counted int
		if err := d.QueryRow(t.Context(), `SELECT SUM(events) FROM email_counts`).Scan(&counted); err != nil || counted != 6 {
			t.Errorf("%d are in counters, %v", counted, err)
		}
		remove(ids[:5]...)
		check("when they are deleted")
		// An event that comes late makes its slot be counted again, with the emails that were deleted.
		w.happen(t, events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[2].id, DomainID: w.emails[2].domain,
			Type: events.EmailDelivered, Recipient: w.emails[2].to[0], At: now.Add(-80 * time.Hour)})
		check("after a late event")
		if err := w.s.RollUp(t.Context()); err != nil {
			t.Fatal(err)
		}
		check("after the recount")
	})
}
