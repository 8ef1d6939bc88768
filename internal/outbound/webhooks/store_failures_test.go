package webhooks_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// inHand claims the only waiting job of the given kind, as a worker does.
func (f *fixture) inHand(t testing.TB, kind string) jobs.Job {
	t.Helper()
	j := jobs.Job{Kind: kind, Attempt: 1, CreatedAt: time.Now()}
	must(t, f.DB.Update(t.Context(), func(tx *db.Tx) error {
		return tx.QueryRow(t.Context(), `UPDATE jobs SET attempt = 1, holder = id WHERE kind = $1
			RETURNING id, lane, team_id, payload`, j.Kind).Scan((*db.ID)(&j.ID), &j.Lane, (*db.ID)(&j.TeamID), &j.Payload)
	}))
	return j
}

// work calls the handler for a job once.
func (f *fixture) work(t testing.TB, j jobs.Job) error {
	t.Helper()
	for _, k := range f.Kinds() {
		if k.Name == j.Kind {
			return k.Handle(t.Context(), j)
		}
	}
	t.Fatalf("there is no kind %s", j.Kind)
	return nil
}

func (f *fixture) change(t testing.TB, texts ...string) {
	t.Helper()
	must(t, f.DB.Update(t.Context(), func(tx *db.Tx) error {
		for _, text := range texts {
			tx.Queue(t.Context(), text)
		}
		return nil
	}))
}

// clear deletes all webhook rows and all jobs.
func (f *fixture) clear(t testing.TB) {
	f.change(t, `DELETE FROM jobs`, `DELETE FROM webhook_attempts`, `DELETE FROM webhook_deliveries`,
		`DELETE FROM webhook_fanouts`, `DELETE FROM webhook_messages`, `DELETE FROM webhooks`)
}

// enqueueBacklog enqueues a job that measures a team's backlog.
func (f *fixture) enqueueBacklog(t testing.TB, team string) {
	must(t, f.DB.Update(t.Context(), func(tx *db.Tx) error {
		f.Queue.Insert(t.Context(), tx, jobs.New{Kind: "webhook.backlog", Lane: team, TeamID: team, Dedupe: team})
		return nil
	}))
}

// If any SQL statement in an operation or job fails, the operation or job returns an error and can be repeated.
// Deliveries are not part of this test, because recording a response is repeated until it succeeds.
func TestVerbsWithoutAStatement(t *testing.T) {
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, f := t.Context(), newFixture(t, d, config(), loopbackOnly)
		const url = "http://127.0.0.1:1"
		team, n := f.Acme.TeamID, 0
		var e webhooks.Endpoint
		var m webhooks.Message
		var j jobs.Job
		fresh := func(more int) {
			f.clear(t)
			e = f.endpoint(t, url)
			for range more {
				f.endpoint(t, url)
			}
			n++
			f.suppress(t, fmt.Sprintf("ann%d@one.example", n))
			if more == 0 {
				m = f.messages(t, e)[0]
			}
			d.Hint("webhooks", team)
		}
		one := func() { fresh(0) }
		kind := func(kind string, more int, spoil ...string) func() {
			return func() {
				fresh(more)
				if kind == webhooks.RecoverKind {
					f.change(t, `UPDATE webhook_deliveries SET status = 'failed'`, `DELETE FROM jobs`)
					must(t, f.Recover(ctx, team, e.ID, time.Now().Add(-time.Hour)))
				}
				if kind == "webhook.backlog" {
					f.enqueueBacklog(t, team)
				}
				f.change(t, spoil...)
				j = f.inHand(t, kind)
				d.Hint("webhooks", team)
			}
		}
		work := func() error { return f.work(t, j) }
		for _, c := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"Create", nil, func() error { _, err := f.Create(ctx, team, url, []string{"email.sent"}); return err }},
			{"Get", one, func() error { _, err := f.Get(ctx, team, e.ID); return err }},
			{"List", nil, func() error { _, _, err := f.List(ctx, team, page.Page{}); return err }},
			{"Update", one, func() error { return f.Service.Update(ctx, team, e.ID, webhooks.Change{Status: new("disabled")}) }},
			{"Delete", one, func() error { return f.Delete(ctx, team, e.ID) }},
			{"Rotate", one, func() error { _, err := f.Rotate(ctx, team, e.ID); return err }},
			{"Messages", one, func() error { _, _, err := f.Messages(ctx, team, e.ID, "", page.Page{}); return err }},
			{"Message", nil, func() error { _, err := f.Message(ctx, team, e.ID, m.ID); return err }},
			{"Attempts", nil, func() error { _, _, err := f.Attempts(ctx, team, e.ID, m.ID, page.Page{}); return err }},
			{"Replay", one, func() error { return f.Replay(ctx, team, e.ID, m.ID) }},
			{"Recover", nil, func() error { return f.Recover(ctx, team, e.ID, time.Now().Add(-time.Hour)) }},
			{"Sweep", func() { one(); f.change(t, `UPDATE webhooks SET status = 'deleted', disabled_at = 1`) },
				func() error { return f.Sweep(ctx) }},
			{"RemoveBefore", func() { one(); f.change(t, `UPDATE webhook_deliveries SET status = 'failed'`) },
				func() error {
					for after, begun := "", false; after != "" || !begun; begun = true {
						var err error
						if after, err = f.RemoveBefore(ctx, team, time.Now().Add(time.Minute), after); err != nil {
							return err
						}
					}
					return nil
				}},
			{"Recorded", func() { one(); n++ }, func() error {
				_, err := f.Suppressions.Add(ctx, team, []string{fmt.Sprintf("ann%d@one.example", n)})
				return err
			}},
			{"Recorded by an email", func() { one(); n++; f.send(t, fmt.Sprintf("bob%d@one.example", n)) }, func() error {
				return d.Update(ctx, func(tx *db.Tx) error {
					var id string
					if err := d.QueryRow(ctx, `SELECT id FROM emails ORDER BY id DESC LIMIT 1`).Scan((*db.ID)(&id)); err != nil {
						return err
					}
					return f.Recorder.Record(ctx, tx, events.Event{TeamID: team, EmailID: id, Type: events.EmailSent})
				})
			}},
			{"one to what is disabled", kind(webhooks.Kind, 0, `UPDATE webhooks SET status = 'disabled'`), work},
			{"a recovery", kind(webhooks.RecoverKind, 0), work},
			{"a fan-out", kind("webhook.fanout", 51), work},
			{"a backlog", kind("webhook.backlog", 0), work},
			{"EraseAddress", one, func() error {
				a, err := erasure.Parse(fmt.Sprintf("ann%d@one.example", n))
				must(t, err)
				_, err = webhooks.EraseAddress(ctx, d, a, erasure.Scope{Teams: []string{team}, All: true})
				return err
			}},
			{"EraseTeam", one, func() error { return f.EraseTeam(ctx, team) }},
		} {
			if failed := trace.EachBroken(t, c.prepare, c.act, nil); failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
			if t.Failed() {
				t.Fatalf("at %s", c.name)
			}
		}
	})
}

// A recovery uses half of the endpoint's maximum backlog and enqueues another job for the remaining messages. If half
// of the maximum number of jobs are already waiting, a recovery reopens no messages.
func TestRecoverFillsHalf(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := config()
		c.EndpointMax = 6
		f := newFixture(t, d, c, loopbackOnly)
		e := f.endpoint(t, "http://127.0.0.1:1")
		f.addresses(t, f.Acme.TeamID, 7)
		f.change(t, `UPDATE webhook_deliveries SET status = 'failed'`, `DELETE FROM jobs`)
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, time.Now().Add(-time.Hour)))
		for _, want := range []struct{ open, recoveries int }{{3, 1}, {3, 1}} {
			must(t, f.work(t, f.inHand(t, webhooks.RecoverKind)))
			open, waits := f.count(t, `webhook_deliveries WHERE status = 'pending'`),
				f.count(t, `jobs WHERE kind = 'webhook.recover'`)
			if open != want.open || waits != want.recoveries {
				t.Errorf("%d messages are open, and %d recoveries wait", open, waits)
			}
		}
		f.change(t, `DELETE FROM jobs WHERE kind <> 'webhook.recover'`,
			`UPDATE webhook_deliveries SET status = 'success' WHERE status = 'pending'`)
		must(t, f.work(t, f.inHand(t, webhooks.RecoverKind)))
		must(t, f.Delete(t.Context(), f.Acme.TeamID, e.ID))
		f.change(t, `DELETE FROM jobs WHERE kind <> 'webhook.recover'`)
		must(t, f.work(t, f.inHand(t, webhooks.RecoverKind)))
		if failed, waits := f.count(t, `webhook_deliveries WHERE status = 'failed'`), f.count(t, `jobs`); failed != 1 ||
			waits != 0 {
			t.Errorf("of a deleted endpoint %d messages have failed, and %d jobs wait", failed, waits)
		}
	})
}

// The sweep deletes the rows of the last of many endpoints, and the last row of an endpoint.
func TestSweepOfMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), loopbackOnly)
		all := f.endpoints(t, f.Acme.TeamID, "http://127.0.0.1:1", 101)
		last := slices.MaxFunc(all, func(a, b webhooks.Endpoint) int { return strings.Compare(a.ID, b.ID) })
		f.addresses(t, f.Acme.TeamID, 1)
		must(t, d.Update(t.Context(), func(tx *db.Tx) error {
			for i := range 250 {
				tx.Queue(t.Context(), `INSERT INTO webhook_deliveries (webhook_id, message_id, team_id, chain, status, tries,
					next_at, finished_at) VALUES ($1, $2, $3, 'c', 'failed', 1, 0, 0)`, db.ID(last.ID),
					db.ID(id.First(time.UnixMilli(int64(i)))), db.ID(f.Acme.TeamID))
				tx.Queue(t.Context(), `INSERT INTO webhook_attempts (webhook_id, message_id, id, team_id, status_code, response,
					error, started_at, duration) VALUES ($1, $2, $3, $4, 0, '', '', 0, 0)`, db.ID(last.ID),
					db.ID(id.First(time.UnixMilli(int64(i)))), db.ID(dbtest.ID("a")), db.ID(f.Acme.TeamID))
			}
			return nil
		}))
		f.sweep(t, 30*24*time.Hour)
		if n := f.count(t, `webhook_attempts`); n != 0 {
			t.Errorf("%d attempts are left of 250", n)
		}
		if n := f.count(t, `webhooks`); n != 101 {
			t.Errorf("%d endpoints are left of 101", n)
		}
		f.change(t, `UPDATE webhooks SET status = 'deleted', disabled_at = 1`)
		must(t, f.Sweep(t.Context()))
		if n := f.count(t, `webhooks`); n != 0 {
			t.Errorf("%d endpoints are left that were deleted long ago", n)
		}
	})
}
