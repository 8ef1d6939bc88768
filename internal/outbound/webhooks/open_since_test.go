package webhooks_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/partitions"
)

// delivery inserts a message in the chain of an address, as of the given number of days ago, with its delivery.
func (f *fixture) delivery(t *testing.T, e webhooks.Endpoint, days int, state webhooks.State) (key string) {
	t.Helper()
	at := time.Now().AddDate(0, 0, -days)
	key = id.First(at)[:24] + id.New()[24:] // id.At must get the current time
	must(t, f.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `INSERT INTO webhook_messages (id, team_id, type, payload, created_at)
			VALUES ($1, $2, 'suppression.added', '{}', $3)`, db.ID(key), db.ID(f.Acme.TeamID), at.UnixMicro())
		tx.Queue(t.Context(), `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries, next_at,
			finished_at) VALUES ($1, $2, $3, 'ann@one.example', $4, 1, 0, 0)`, db.ID(e.ID), db.ID(key), db.ID(f.Acme.TeamID),
			string(state))
		return nil
	}))
	return key
}

// tried handles a job for a message, and reports whether the message was tried.
func (f *fixture) tried(t *testing.T, e webhooks.Endpoint, key string) bool {
	t.Helper()
	must(t, f.DB.Update(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `DELETE FROM jobs`)
		f.Queue.Insert(t.Context(), tx, jobs.New{Kind: webhooks.Kind, Lane: f.Acme.TeamID + "|" + e.ID,
			TeamID: f.Acme.TeamID, Payload: webhooks.MessagePrefix + id.Compact(key)})
		return nil
	}))
	must(t, f.work(t, f.inHand(t, webhooks.Kind)))
	return f.count(t, "webhook_attempts WHERE message_id = $1", db.ID(key)) > 0
}

var deliveriesRead = regexp.MustCompile(`on (webhook_deliveries_\w+)`)

// partitionsRead returns how many partitions of deliveries each statement of the trace reads, at most.
func partitionsRead(t *testing.T, trace *dbtest.Trace) (most int, text string) {
	t.Helper()
	for _, s := range trace.TakeAll() {
		if !strings.Contains(s.SQL, "webhook_deliveries") {
			continue
		}
		names := map[string]bool{}
		for _, m := range deliveriesRead.FindAllStringSubmatch(trace.Plan(t, s), -1) {
			names[m[1]] = true
		}
		if len(names) > most {
			most, text = len(names), s.SQL
		}
	}
	return most, text
}

// With many partitions, a message in the chain of an address reads few of them, once an earlier message has found that
// nothing older is unfinished.
func TestLooksBackAtFewPartitions(t *testing.T) {
	t.Parallel()
	d, trace := dbtest.PostgresTraced(t)
	dbtest.DropPartitions(t, d)
	must(t, partitions.New(d, "day", nil).MakeSince(t.Context(), time.Now().AddDate(0, 0, -30)))
	f := newFixture(t, d, config(), loopbackOnly)
	x := receive(t, nil)
	e := f.endpoint(t, x.URL)
	trace.Take()
	if !f.tried(t, e, f.delivery(t, e, 0, webhooks.Pending)) {
		t.Error("the first message of a new endpoint was not tried")
	}
	if n, text := partitionsRead(t, trace); n > 5 { // today's, those of two days, tomorrow's and the default partition
		t.Errorf("for a new endpoint, a statement reads %d partitions: %s", n, text)
	}
	f.change(t, `UPDATE webhooks SET open_since = '00000000-0000-0000-0000-000000000000'`)
	for i := range 3 {
		key := f.delivery(t, e, 0, webhooks.Pending)
		if i == 2 { // as if the column had been raised almost a day ago
			must(t, d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE webhooks SET open_since = $1`, db.ID(id.First(time.Now().Add(-71*time.Hour))))
				return nil
			}))
		}
		trace.Take()
		if !f.tried(t, e, key) {
			t.Errorf("message %d was not tried", i)
		}
		n, text := partitionsRead(t, trace)
		if i == 0 && n < 28 {
			t.Errorf("the first look of an old endpoint reads %d partitions", n)
		}
		if i > 0 && n > 5 {
			t.Errorf("message %d reads %d partitions: %s", i, n, text)
		}
	}
	must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, f.messages(t, e)[0].ID))
	trace.Take()
	must(t, f.work(t, f.inHand(t, webhooks.Kind)))
	if n, text := partitionsRead(t, trace); n > 5 {
		t.Errorf("a replay reads %d partitions: %s", n, text)
	}
}

// Messages wait for an earlier message of their chain after the look back was limited: for one that was unfinished at
// that time, for one that a fan-out inserts later, and for one that is reopened by a recovery.
func TestOpenSince(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var f *fixture
		var e webhooks.Endpoint
		begin := func() {
			f = start(t, d, config(), loopbackOnly) // another node, which has raised no column yet
			if e.ID != "" {
				f.clear(t)
			}
			f.Acme, _ = f.Team("Acme")
			e = f.endpoint(t, receive(t, nil).URL)
			must(t, d.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE webhooks SET open_since = $1`, db.NoID)
				return nil
			}))
		}
		bound := func() (since db.ID) {
			must(t, d.QueryRow(t.Context(), `SELECT open_since FROM webhooks`).Scan(&since))
			return since
		}
		tried := func(what string, want bool) {
			t.Helper()
			if got := f.tried(t, e, f.delivery(t, e, 0, webhooks.Pending)); got != want {
				t.Errorf("%s: tried is %v", what, got)
			}
		}
		begin()
		f.delivery(t, e, 20, webhooks.Success)
		old := f.delivery(t, e, 10, webhooks.Attempting)
		tried("beside an unfinished message of ten days ago", false)
		if !d.Alone() && bound() != db.ID(old) {
			t.Errorf("no message before %s is open, but the column has %s", old, bound())
		}
		f.change(t, `UPDATE webhook_deliveries SET status = 'success' WHERE status = 'attempting'`,
			`DELETE FROM webhook_attempts`)
		begin()
		old = f.delivery(t, e, 9, webhooks.Success)
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Queue(t.Context(), `INSERT INTO webhook_fanouts (team_id, chain, message_id, type, after, created_at)
				VALUES ($1, 'another', $2, 'email.sent', $3, 0)`, db.ID(f.Acme.TeamID), db.ID(old), db.NoID)
			return nil
		}))
		tried("before the fan-out", true)
		f.change(t, `UPDATE webhook_deliveries SET status = 'pending' WHERE status = 'success' AND finished_at = 0`,
			`DELETE FROM webhook_fanouts`)
		tried("after the fan-out of a message of nine days ago", false)
		begin()
		f.delivery(t, e, 20, webhooks.Failed)
		tried("after a failed message", true)
		if since := bound(); !d.Alone() && since < db.ID(id.First(time.Now().Add(-49*time.Hour))) {
			t.Errorf("nothing is unfinished, but the column has %s", since)
		}
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, time.Now().AddDate(0, 0, -30)))
		must(t, f.work(t, f.inHand(t, webhooks.RecoverKind)))
		tried("after a failed message was reopened", false)
	})
}

// A delivery that failed during an attempt stays failed if the attempt fails too, so that only a recovery reopens it.
func TestAttemptReopensNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		e := f.endpoint(t, receive(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
			f.change(t, `UPDATE webhook_deliveries SET status = 'failed'`)
			w.WriteHeader(http.StatusInternalServerError)
		}).URL)
		f.tried(t, e, f.delivery(t, e, 0, webhooks.Pending))
		if m := f.messages(t, e)[0]; m.State != webhooks.Failed {
			t.Errorf("the message is %s", m.State)
		}
	})
}
