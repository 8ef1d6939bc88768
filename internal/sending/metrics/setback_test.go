package metrics_test

import (
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// After a clock that was ahead is set back, the counters already cover the present. The next RollUp makes events of the
// present count, and no event counts twice.
func TestCountsAfterClockIsSetBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		w, now := newFixture(t, d), time.Now().Truncate(time.Microsecond)
		delivered := func(i int, at time.Time) events.Event {
			return events.Event{TeamID: dbtest.ID("team"), EmailID: w.emails[i].id, DomainID: w.emails[i].domain,
				Type: events.EmailDelivered, Recipient: w.emails[i].to[0], At: at}
		}
		received := func(at time.Time) events.Event {
			return events.Event{TeamID: dbtest.ID("team"), DomainID: w.emails[0].domain, Type: events.EmailReceived,
				Data: &events.Received{ID: id.New()}, At: at}
		}
		check := func(when string) {
			t.Helper()
			for _, ahead := range []time.Duration{time.Second, 50 * time.Hour} {
				q := metrics.Query{From: now.Add(-100 * time.Hour), To: now.Add(ahead),
					ByPeriod: func(at time.Time) string { return at.UTC().Format("02 15") }}
				got, err := w.s.Count(t.Context(), dbtest.ID("team"), q)
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(w.recount(q), sorted(got)); diff != "" {
					t.Errorf("%s, up to %s: %s", when, ahead, diff)
				}
			}
		}
		rollUp := func() {
			t.Helper()
			if err := w.s.RollUp(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		w.happen(t, delivered(0, now.Add(-30*time.Hour)), delivered(1, now.Add(-2*time.Hour)), received(now.Add(-time.Hour)))
		rollUp()
		w.delete(t, w.emails[1])
		if !w.gone[w.emails[1].id] {
			t.Error("an email that is counted is not deleted")
		}
		check("before")
		// As a RollUp leaves it whose clock is 20 hours ahead.
		w.happen(t, delivered(2, now.Add(20*time.Hour)))
		w.update(t, func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE email_counts_until SET until = $1, version = version + 1`,
				now.Add(20*time.Hour+10*time.Minute).UnixMicro())
			tx.Queue(t.Context(), `INSERT INTO email_counts (team_id, slot, domain_id, broadcast_id, type, detail, events,
				recipients, people) VALUES ($1, $2, $3, $4, 5, '', 1, 1, 0)`, db.ID(dbtest.ID("team")),
				now.Add(20*time.Hour).UnixMicro()/(15*time.Minute).Microseconds(), db.ID(w.emails[2].domain), db.NoID)
			return nil
		})
		check("with the clock ahead")
		w.happen(t, delivered(3, now), received(now))
		rollUp()
		check("after it was set back")
		w.delete(t, w.emails[2])
		w.delete(t, w.emails[3])
		if w.gone[w.emails[2].id] || w.gone[w.emails[3].id] {
			t.Error("an email that is not counted is deleted")
		}
		rollUp()
		check("after another count")
		w.happen(t, delivered(4, now.Add(-3*time.Hour)))
		check("after a late event")
		rollUp()
		check("after its recount")
	})
}
