package webhooks_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// If the database fails at any point during a delivery or replay, either no request is made or the response is
// recorded. A replay that fails after its request is repeated.
func TestDeliveryWithoutDatabase(t *testing.T) {
	for _, replay := range []bool{false, true} {
		t.Run(map[bool]string{false: "delivery", true: "replay"}[replay], func(t *testing.T) {
			t.Parallel()
			d, proxy := dbtest.Proxied(t, 0)
			f := newFixture(t, d, config(), loopbackOnly)
			to := receive(t, nil)
			e := f.endpoint(t, to.URL)
			handle := f.Kinds()[0].Handle
			var j jobs.Job
			inHand := func() {
				t.Helper()
				j = jobs.Job{Kind: webhooks.Kind, Attempt: 1, CreatedAt: time.Now()}
				must(t, d.Update(t.Context(), func(tx *db.Tx) error {
					return tx.QueryRow(t.Context(), `UPDATE jobs SET attempt = 1, holder = id WHERE kind = $1
						RETURNING id, lane, team_id, payload`, j.Kind).Scan((*db.ID)(&j.ID), &j.Lane, (*db.ID)(&j.TeamID),
						&j.Payload)
				}))
			}
			n, heard, before := 0, 0, webhooks.Pending
			failed := dbtest.EachTorn(t, proxy, func() {
				must(t, d.Update(t.Context(), func(tx *db.Tx) error {
					tx.Queue(t.Context(), `DELETE FROM jobs`)
					return nil
				}))
				n++
				f.suppress(t, fmt.Sprintf("ann%d@one.example", n))
				inHand()
				if replay {
					must(t, handle(t.Context(), j))
					must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, f.messages(t, e)[0].ID))
					inHand()
					before = webhooks.Success
				}
				d.Hint("webhooks", f.Acme.TeamID) // makes the node reload the endpoint
				heard = len(to.all())
			}, func() error { return handle(t.Context(), j) }, func(skip int, err error) {
				var left int
				must(t, d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE id = $1`, db.ID(j.ID)).Scan(&left))
				m, requests := f.messages(t, e)[0], len(to.all())-heard
				done := m.State == webhooks.Success && requests == 1 && left == 0
				undone := m.State == before && (requests == 0 || replay) && left == 1
				if !done && (err == nil || !undone) {
					t.Errorf("answer %d torn: %v; the message is %s, %d requests, %d jobs are left", skip, err, m.State, requests,
						left)
				}
			})
			if failed < 2 {
				t.Errorf("%d deliveries failed: the test reaches too little", failed)
			}
		})
	}
}

// While the database is unavailable, no operation reports success, and none reports that a webhook does not exist.
func TestVerbsWithoutDatabase(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	f := newFixture(t, d, config(), loopbackOnly)
	e := f.endpoint(t, "http://127.0.0.1:1")
	f.suppress(t, "ann@one.example")
	m, team, ctx := f.messages(t, e)[0], f.Acme.TeamID, t.Context()
	d.Close()
	for name, f := range map[string]func() error{
		"Create": func() error {
			_, err := f.Create(ctx, team, "http://127.0.0.1:1", []string{"email.sent"})
			return err
		},
		"Get":          func() error { _, err := f.Get(ctx, team, e.ID); return err },
		"List":         func() error { _, _, err := f.List(ctx, team, page.Page{}); return err },
		"Update":       func() error { return f.Service.Update(ctx, team, e.ID, webhooks.Change{}) },
		"Delete":       func() error { return f.Delete(ctx, team, e.ID) },
		"Rotate":       func() error { _, err := f.Rotate(ctx, team, e.ID); return err },
		"Messages":     func() error { _, _, err := f.Messages(ctx, team, e.ID, "", page.Page{}); return err },
		"Message":      func() error { _, err := f.Message(ctx, team, e.ID, m.ID); return err },
		"Attempts":     func() error { _, _, err := f.Attempts(ctx, team, e.ID, m.ID, page.Page{}); return err },
		"Replay":       func() error { return f.Replay(ctx, team, e.ID, m.ID) },
		"Recover":      func() error { return f.Recover(ctx, team, e.ID, time.Now().Add(-time.Hour)) },
		"Sweep":        func() error { return f.Sweep(ctx) },
		"RemoveBefore": func() error { _, err := f.RemoveBefore(ctx, team, time.Now(), ""); return err },
		"EraseTeam":    func() error { return f.EraseTeam(ctx, team) },
	} {
		if err := f(); !fault.Ours(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, k := range f.Kinds() {
		j := jobs.Job{ID: "j", Kind: k.Name, Lane: team + "|" + e.ID, TeamID: team, Attempt: 1, Payload: m.ID}
		if k.Name != webhooks.Kind {
			j.Payload = `{"message":"` + m.ID + `","endpoint":"` + e.ID + `","webhook_id":"` + e.ID + `"}`
		}
		if err := k.Handle(ctx, j); err == nil {
			t.Errorf("%s: no error", k.Name)
		}
	}
}
