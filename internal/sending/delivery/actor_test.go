package delivery

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Scheduled emails are delivered for every kind of actor. If the actor is an API key, the key must still exist.
func TestDeliverScheduledByAnyActor(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(1), n.dns)
		for _, k := range f.Emails.Kinds() {
			f.runner.Handle(k)
		}
		f.Teams.GrantActive = func(_ context.Context, _ db.Reader, teamID, grantID string) (bool, error) {
			return teamID == f.Acme.TeamID && grantID == dbtest.ID("grant"), nil
		}
		f.Teams.GrantMaySend = func(_ context.Context, _ db.Reader, teamID, grantID string, due teams.DueSend) (bool, error) {
			return teamID == f.Acme.TeamID && grantID == dbtest.ID("grant") && due.Recipients == 1, nil
		}
		f.Emails.ConsumeDueLimit = func(context.Context, *db.Tx, string, string, int, time.Time) error { return nil }
		sends := teams.NewScopes(teams.EmailsSend)
		scheduled := map[string]string{}
		for name, by := range map[string]teams.Actor{
			"key":         f.Acme,
			"deleted-key": {Kind: teams.KeyActor, ID: dbtest.ID("deleted"), TeamID: f.Acme.TeamID, Scopes: sends},
			"person":      {Kind: teams.UserActor, ID: dbtest.ID("user"), TeamID: f.Acme.TeamID, Scopes: sends},
			"grant":       {Kind: teams.GrantActor, ID: dbtest.ID("grant"), TeamID: f.Acme.TeamID, Scopes: sends},
			"system":      teams.System(f.Acme.TeamID),
		} {
			text := "Hello"
			emailID, err := f.Emails.Send(t.Context(), by, emails.Send{From: "a@" + from, Subject: "Hello",
				To: []string{name + "@" + destination}, Text: &text, ScheduledAt: "in 1 hour"}, emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			scheduled[name] = emailID
		}
		f.run()
		for name, emailID := range scheduled {
			now := time.Now().Add(-time.Second).Format(time.RFC3339)
			if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, emailID, now); err != nil {
				t.Fatal(err)
			}
			end := events.EmailDelivered
			if name == "deleted-key" {
				end = events.EmailFailed
			}
			got := f.wait(emailID, end)
			e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, emailID)
			if err != nil || string(end) != "email."+string(e.LastEvent) {
				t.Errorf("%s: the email is %s after %q, %v", name, e.LastEvent, got, err)
			}
		}
		failed := f.event(scheduled["deleted-key"], events.EmailFailed).Data.(*events.Failed)
		if failed.Reason != "invalid_api_key" {
			t.Errorf("the email of a deleted key failed because of %s", failed.Reason)
		}
		var to []string
		for _, m := range mx.Wait(4) {
			to = append(to, strings.TrimSuffix(m.To[0], "@"+destination))
		}
		slices.Sort(to)
		if got := strings.Join(to, " "); got != "grant key person system" {
			t.Errorf("messages arrived for %s", got)
		}
	})
}
