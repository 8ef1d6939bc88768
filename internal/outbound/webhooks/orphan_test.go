package webhooks_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// replayed returns a fixture with a delivered message whose replay is under way. The function during is called while
// the receiver handles the replay.
func replayed(t *testing.T, d *db.DB, during func(f *fixture)) *fixture {
	t.Helper()
	f := newFixture(t, d, config(), loopbackOnly)
	x := receive(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			during(f)
		}
		w.WriteHeader(http.StatusBadRequest)
	})
	e := f.endpoint(t, x.URL)
	f.suppress(t, "ann@one.example")
	must(t, f.work(t, f.inHand(t, "webhook")))
	f.change(t, `DELETE FROM jobs`, `UPDATE webhook_deliveries SET status = 'failed'`)
	must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, f.messages(t, e)[0].ID))
	return f
}

// leavesNothing handles the job, and checks that no attempt is left without its delivery.
func (f *fixture) leavesNothing(t *testing.T) {
	t.Helper()
	must(t, f.work(t, f.inHand(t, "webhook")))
	if n := f.count(t, "webhook_deliveries"); n != 0 {
		t.Errorf("%d deliveries are left", n)
	}
	if n := f.count(t, "webhook_attempts"); n != 0 {
		t.Errorf("%d attempts are left without a delivery", n)
	}
	if n := f.count(t, "jobs"); n != 0 {
		t.Errorf("%d jobs are left", n)
	}
}

// A message is deleted by retention while it is replayed. The attempt is not stored.
func TestReplayOfDeletedMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := replayed(t, d, func(f *fixture) { f.sweep(t, -time.Minute) })
		f.leavesNothing(t)
	})
}

// The partition of a message is dropped while the message is replayed.
func TestReplayInDroppedPartition(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	dbtest.DropPartitions(t, d) // which are of months
	parts := partitions.New(d, "day", nil)
	from := d.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -3)
	span := partitions.Span{From: from, To: from.AddDate(0, 0, 1)}
	f := replayed(t, d, func(*fixture) {
		if err := parts.Drop(t.Context(), partitions.Webhooks, span, func(*db.Tx, string, string) ([]partitions.Kept,
			error) {
			return nil, nil
		}); err != nil {
			t.Error(err)
		}
	})
	must(t, parts.MakeSince(t.Context(), from))
	old := id.First(from.Add(time.Hour))
	must(t, d.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `UPDATE webhook_messages SET id = $1`, db.ID(old))
		tx.Queue(t.Context(), `UPDATE webhook_deliveries SET message_id = $1`, db.ID(old))
		tx.Queue(t.Context(), `UPDATE webhook_attempts SET message_id = $1`, db.ID(old))
		tx.Queue(t.Context(), `UPDATE jobs SET payload = $1`, "replay:msg_"+id.Compact(old))
		return nil
	}))
	f.leavesNothing(t)
}

// Retention deletes a message while the transaction that records its replay is open: the deletion waits, and also
// deletes the attempt.
func TestReplayBesideDeletion(t *testing.T) {
	t.Parallel()
	d, trace := dbtest.PostgresTraced(t)
	f := replayed(t, d, func(*fixture) {})
	swept := make(chan struct{})
	trace.Before("INSERT INTO webhook_attempts", func() {
		go func() {
			defer close(swept)
			f.sweep(t, -time.Minute)
		}()
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			select {
			case <-swept:
				return
			default:
			}
			if f.count(t, "pg_locks WHERE NOT granted AND pid IN (SELECT pid FROM pg_stat_activity WHERE datname = "+
				"current_database())") > 0 {
				return
			}
		}
		t.Error("the deletion neither waits nor ends")
	})
	must(t, f.work(t, f.inHand(t, "webhook")))
	<-swept
	if n := f.count(t, "webhook_deliveries") + f.count(t, "webhook_attempts"); n != 0 {
		t.Errorf("%d rows are left", n)
	}
}

// An old message is delivered by a replay, and then deleted by retention, while a scheduled attempt is under way.
func TestAttemptOfDeletedMessage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		x := receive(t, func(int, http.ResponseWriter, *http.Request) {
			f.change(t, `UPDATE webhook_deliveries SET status = 'success'`)
			f.sweep(t, -time.Minute)
		})
		f.endpoint(t, x.URL)
		f.suppress(t, "ann@one.example")
		old := id.First(time.Now().AddDate(0, 0, -2))
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `UPDATE webhook_messages SET id = $1`, db.ID(old))
			tx.Queue(t.Context(), `UPDATE webhook_deliveries SET message_id = $1`, db.ID(old))
			tx.Queue(t.Context(), `UPDATE jobs SET payload = $1 WHERE kind = 'webhook'`, "msg_"+id.Compact(old))
			return nil
		}))
		f.leavesNothing(t)
	})
}
