package webhooks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// sweep deletes all rows of the team that are older than the retention period, and those of deleted endpoints.
func (f *fixture) sweep(t testing.TB, retention time.Duration) {
	t.Helper()
	for after, begun := "", false; after != "" || !begun; begun = true {
		var err error
		if after, err = f.RemoveBefore(t.Context(), f.Acme.TeamID, time.Now().Add(-retention), after); err != nil {
			t.Fatal(err)
		}
	}
	must(t, f.Sweep(t.Context()))
}

// Old deliveries that are not finished stay with their messages and attempts, in batches and if their partition is
// dropped. Messages whose fan-out has not ended stay too.
func TestUnfinishedStays(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		e, other := f.endpoint(t, "http://127.0.0.1:1"), f.endpoint(t, "http://127.0.0.1:1")
		const n = 250
		f.addresses(t, f.Acme.TeamID, n)
		f.change(t, `DELETE FROM jobs`, `UPDATE webhook_deliveries SET status = 'success'`)
		var keys []db.ID
		rows, err := d.Query(t.Context(), `SELECT id FROM webhook_messages ORDER BY id`)
		keys, err = db.Collect(rows, err, func(r db.Row) (key db.ID, err error) { err = r.Scan(&key); return key, err })
		if err != nil || len(keys) != n {
			t.Fatal(len(keys), err)
		}
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			for i, state := range map[int]string{3: "pending", 120: "attempting", 249: "failed"} {
				tx.Queue(t.Context(), `UPDATE webhook_deliveries SET status = $3 WHERE webhook_id = $1 AND message_id = $2`,
					db.ID(e.ID), keys[i], state)
			}
			for _, endpoint := range []string{e.ID, other.ID} {
				tx.Queue(t.Context(), `INSERT INTO webhook_attempts (webhook_id, message_id, id, team_id, status_code, response,
					error, started_at, duration) SELECT $1, id, id, team_id, 0, '', '', 0, 0 FROM webhook_messages`, db.ID(endpoint))
			}
			tx.Queue(t.Context(), `INSERT INTO webhook_fanouts (team_id, chain, message_id, type, after, created_at)
				VALUES ($1, 'c', $2, 'email.sent', $3, 0)`, db.ID(f.Acme.TeamID), keys[77], db.NoID)
			return nil
		}))
		kept, err := f.Unsettled(t.Context(), d.Reader, string(keys[0]), string(keys[200]))
		if err != nil || len(kept) != 3 {
			t.Errorf("kept would be %v, %v", kept, err)
		}
		f.sweep(t, -time.Minute)
		if got := fmt.Sprint(f.count(t, "webhook_messages"), f.count(t, "webhook_deliveries"),
			f.count(t, "webhook_attempts")); got != "3 2 2" {
			t.Errorf("messages, deliveries and attempts: %s", got)
		}
		f.change(t, `UPDATE webhook_deliveries SET status = 'success'`, `DELETE FROM webhook_fanouts`)
		f.sweep(t, -time.Minute)
		if n := f.count(t, "webhook_messages") + f.count(t, "webhook_deliveries") + f.count(t, "webhook_attempts"); n > 0 {
			t.Errorf("%d rows are left of finished deliveries", n)
		}
	})
}

// A message waits for an earlier message of its chain, however long ago that was.
func TestWaitsForALongEarlierMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		e := f.endpoint(t, "http://127.0.0.1:1")
		f.suppress(t, "ann@one.example")
		now := time.Now()
		for name, chain := range map[string]string{"an address": "ann@one.example",
			"an email": id.First(now.AddDate(0, 0, -20))} {
			for days, waits := range map[int]bool{0: true, 1: true, 10: true, 19: true} {
				f.change(t, `DELETE FROM jobs`, `DELETE FROM webhook_attempts`)
				early, late := db.ID(id.First(now.Add(-time.Hour).AddDate(0, 0, -days))), db.ID(id.First(now))
				must(t, d.Update(t.Context(), func(tx *db.Tx) error {
					tx.Queue(t.Context(), `DELETE FROM webhook_deliveries`)
					tx.Queue(t.Context(), `DELETE FROM webhook_messages`)
					tx.Queue(t.Context(), `UPDATE webhooks SET open_since = $1`, db.NoID) // of an old endpoint
					for _, key := range []db.ID{early, late} {
						tx.Queue(t.Context(), `INSERT INTO webhook_messages (id, team_id, type, payload, created_at)
							VALUES ($1, $2, 'email.sent', '{}', 0)`, key, db.ID(f.Acme.TeamID))
						tx.Queue(t.Context(), `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries,
							next_at, finished_at) VALUES ($1, $2, $3, $4, 'attempting', 1, $5, 0)`, db.ID(e.ID), key,
							db.ID(f.Acme.TeamID), chain, now.Add(time.Hour).UnixMicro())
					}
					f.Queue.Insert(t.Context(), tx, jobs.New{Kind: webhooks.Kind, Lane: f.Acme.TeamID + "|" + e.ID,
						TeamID: f.Acme.TeamID, Payload: webhooks.MessagePrefix + id.Compact(string(late))})
					return nil
				}))
				must(t, f.work(t, f.inHand(t, webhooks.Kind)))
				if tried := f.count(t, "webhook_attempts") > 0; tried == waits {
					t.Errorf("in the chain of %s, with a message of %d days before, the later one was tried: %v", name, days, tried)
				}
			}
		}
	})
}
