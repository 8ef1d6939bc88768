package emails_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// schedule schedules an email to be sent in one hour and returns its id.
func (f *fixture) schedule(t *testing.T) string {
	t.Helper()
	s := hello("a@one.example")
	s.ScheduledAt = "in 1 hour"
	return f.Send(s)
}

// due makes a scheduled email due now.
func (f *fixture) due(t *testing.T, emailID string) {
	t.Helper()
	now := time.Now().Add(-time.Second).Format(time.RFC3339)
	if err := f.Emails.Reschedule(t.Context(), f.Acme.TeamID, emailID, now); err != nil {
		t.Fatal(err)
	}
}

// If a newer release enqueues a job with an unknown kind of actor, the job stays in the queue until a node with the
// newer release handles it.
func TestUnknownKindOfActorWaits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.schedule(t)
		f.change(`UPDATE emails SET actor_kind = 99 WHERE id = $1`, db.ID(id))
		f.due(t, id)
		f.release(t, func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE dedupe = '`+id+`' AND failures > 0`) == 1
		})
		if f.Count(`SELECT COUNT(*) FROM emails WHERE id = $1 AND last_event = 1 /* scheduled */`, db.ID(id)) != 1 {
			t.Error("the email is not scheduled any more")
		}
	})
}

// Every kind of actor is stored in the row of an email.
func TestEmailsKnowTheirActor(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, want := range []teams.ActorRef{f.Acme.Ref(), {Kind: teams.UserActor, ID: dbtest.ID("u")},
			{Kind: teams.GrantActor, ID: dbtest.ID("g")}, {Kind: teams.SystemActor}} {
			by := teams.Actor{Kind: want.Kind, ID: want.ID, TeamID: f.Acme.TeamID, Scopes: f.Acme.Scopes}
			id, err := f.Emails.Send(t.Context(), by, hello("a@one.example"), emails.Idempotency{})
			if err != nil {
				t.Fatal(err)
			}
			if e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, id); err != nil || e.Actor != want {
				t.Errorf("it was sent by %+v, want %+v; %v", e.Actor, want, err)
			}
		}
	})
}
