package webhooks_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
)

// Each operation rejects invalid arguments with the right kind of fault, and distinguishes missing rows from database
// errors.
func TestVerbsThatAreRefused(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), dbtest.SQLite(t)
	f := newFixture(t, d, config(), loopbackOnly)
	const url = "http://127.0.0.1:1"
	team, e := f.Acme.TeamID, f.endpoint(t, url)
	f.suppress(t, "ann@one.example")
	m := f.messages(t, e)[0]
	hour := time.Now().Add(-time.Hour)
	create := func(url string, names []string) error { _, err := f.Create(ctx, team, url, names); return err }
	refused := func(what string, err error, want fault.Kind) {
		t.Helper()
		if fault.KindOf(err) != want || err == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refused("no URL", create("", []string{"email.sent"}), fault.Missing)
	refused("no events", create(url, nil), fault.Missing)
	refused("an empty list of events", create(url, []string{}), fault.Invalid)
	refused("no time", f.Recover(ctx, team, e.ID, time.Time{}), fault.Missing)
	refused("a time to come", f.Recover(ctx, team, e.ID, time.Now().Add(time.Hour)), fault.Invalid)
	refused("a time before all", f.Recover(ctx, team, e.ID, time.Date(1999, 12, 31, 23, 0, 0, 0, time.UTC)), fault.Invalid)
	if err := f.Recover(ctx, team, e.ID, time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)); err != nil {
		t.Error(err)
	}
	refused("another status", f.Service.Update(ctx, team, e.ID, webhooks.Change{Status: new("deleted")}), fault.Invalid)
	refused("another URL", f.Service.Update(ctx, team, e.ID, webhooks.Change{URL: new("nonsense")}), fault.Invalid)
	unknown := webhooks.Change{Events: []string{"email.eaten"}}
	refused("other events", f.Service.Update(ctx, team, e.ID, unknown), fault.Invalid)
	_, _, err := f.Messages(ctx, team, e.ID, "eaten", page.Page{})
	refused("messages of no state", err, fault.Invalid)
	for _, state := range []webhooks.State{webhooks.Pending, webhooks.Attempting, webhooks.Success, webhooks.Failed} {
		all, _, err := f.Messages(ctx, team, e.ID, state, page.Page{Limit: 10})
		if err != nil || len(all) != map[webhooks.State]int{webhooks.Pending: 1}[state] {
			t.Errorf("%d are %s, %v", len(all), state, err)
		}
	}
	for what, id := range map[string]string{"none": "none", "another team's": f.endpoint(t, url).ID} {
		by := team
		if what != "none" {
			by = dbtest.ID("other")
		}
		_, err := f.Get(ctx, by, id)
		refused("Get of "+what, err, fault.NotFound)
		_, _, err = f.Messages(ctx, by, id, "", page.Page{})
		refused("Messages of "+what, err, fault.NotFound)
		_, err = f.Message(ctx, by, id, m.ID)
		refused("Message of "+what, err, fault.NotFound)
		_, _, err = f.Attempts(ctx, by, id, m.ID, page.Page{})
		refused("Attempts of "+what, err, fault.NotFound)
		_, err = f.Rotate(ctx, by, id)
		refused("Rotate of "+what, err, fault.NotFound)
		refused("Update of "+what, f.Service.Update(ctx, by, id, webhooks.Change{}), fault.NotFound)
		refused("Delete of "+what, f.Delete(ctx, by, id), fault.NotFound)
		refused("Replay of "+what, f.Replay(ctx, by, id, m.ID), fault.NotFound)
		refused("Recover of "+what, f.Recover(ctx, by, id, hour), fault.NotFound)
	}
	refused("Replay of no message", f.Replay(ctx, team, e.ID, "msg_none"), fault.NotFound)
	f.change(t, `UPDATE webhooks SET full_since = 1`)
	refused("Replay while too much waits", f.Replay(ctx, team, e.ID, m.ID), fault.TooFast)
	f.change(t, `UPDATE webhooks SET status = 'disabled'`)
	refused("Replay of what is disabled", f.Replay(ctx, team, e.ID, m.ID), fault.Invalid)
	refused("Recover of what is disabled", f.Recover(ctx, team, e.ID, hour), fault.Invalid)

	f.change(t, `UPDATE webhooks SET secret = x'78', status = 'enabled', full_since = 0`)
	d.Hint("webhooks", team)
	if _, err := f.Get(ctx, team, e.ID); !fault.Ours(err) {
		t.Errorf("a secret that cannot be opened: %v", err)
	}
	if err := f.work(t, f.inHand(t, webhooks.Kind)); err == nil {
		t.Error("what cannot be signed is delivered")
	}
	for _, kind := range []string{webhooks.RecoverKind, "webhook.fanout"} {
		if err := f.work(t, jobs.Job{Kind: kind, TeamID: team, Payload: "junk"}); err == nil {
			t.Errorf("a job %s that cannot be read has ended", kind)
		}
	}
}

// A replay makes no request if its message or endpoint no longer exists.
func TestReplayOfDeletedRows(t *testing.T) {
	t.Parallel()
	ctx, d := t.Context(), dbtest.SQLite(t)
	f := newFixture(t, d, config(), loopbackOnly)
	team, to := f.Acme.TeamID, receive(t, nil)
	there := f.endpoint(t, to.URL)
	f.suppress(t, "bob@one.example")
	f.change(t, `DELETE FROM jobs`)
	for _, c := range [][2]string{{"the message", `DELETE FROM webhook_deliveries`},
		{"the endpoint", `DELETE FROM webhooks`}} {
		name, spoil := c[0], c[1]
		if name == "the endpoint" {
			there = f.endpoint(t, to.URL)
			f.suppress(t, "joe@one.example")
			f.change(t, `DELETE FROM jobs`)
		}
		must(t, f.Replay(ctx, team, there.ID, f.messages(t, there)[0].ID))
		j := f.inHand(t, webhooks.Kind)
		f.change(t, spoil)
		d.Hint("webhooks", team)
		if err := f.work(t, j); err != nil || f.count(t, `jobs`) != 0 || len(to.all()) != 0 {
			t.Errorf("%s is gone: %v, %d jobs, %d requests", name, err, f.count(t, `jobs`), len(to.all()))
		}
	}
}

// Messages that wait for a disabled endpoint fail.
func TestDisabledEndpointFailsItsMessages(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	f := newFixture(t, d, config(), loopbackOnly)
	team, to := f.Acme.TeamID, receive(t, nil)
	there := f.endpoint(t, to.URL)
	f.suppress(t, "eve@one.example")
	f.change(t, `UPDATE webhooks SET status = 'disabled'`)
	d.Hint("webhooks", team)
	if err := f.work(t, f.inHand(t, webhooks.Kind)); err != nil || f.messages(t, there)[0].State != webhooks.Failed ||
		f.count(t, `jobs`) != 0 {
		t.Errorf("%v; the message is %s, %d jobs", err, f.messages(t, there)[0].State, f.count(t, `jobs`))
	}
}
