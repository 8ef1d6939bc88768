package emails_test

import (
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
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

func (f *fixture) exec(t *testing.T, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), text)
			return err
		}); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// If a newer release enqueues a job with an unknown kind of actor, the job stays in the queue until a node with the
// newer release handles it.
func TestUnknownKindOfActorWaits(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		id := f.schedule(t)
		f.exec(t, `UPDATE emails SET actor_kind = 'robot' WHERE id = '`+id+`'`)
		f.due(t, id)
		f.release(t, func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE dedupe = '`+id+`' AND failures > 0`) == 1
		})
		if state := f.state(id); state != emails.Scheduled {
			t.Errorf("the email is %s", state)
		}
	})
}

// If an older release stored an email without an actor kind, its actor is an API key. The upgrade does not rewrite the
// rows; the test can check this only on PostgreSQL.
func TestEmailsFromBeforeActors(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		kept, orphan := f.schedule(t), f.schedule(t)
		f.exec(t, `ALTER TABLE emails DROP COLUMN actor_kind`, `ALTER TABLE request_logs DROP COLUMN actor_kind`,
			`UPDATE emails SET api_key_id = 'deleted' WHERE id = '`+orphan+`'`,
			`DELETE FROM migrations WHERE name LIKE '%actors'`)
		file := func() (n int) {
			if f.DB.Engine() == "postgres" {
				n = f.Count(`SELECT relfilenode::bigint FROM pg_class WHERE oid = 'emails'::regclass`)
			}
			return n
		}
		before := file()
		if applied, err := f.DB.Migrate(t.Context()); err != nil || len(applied) != 1 {
			t.Fatalf("applied %v, %v", applied, err)
		}
		if file() != before {
			t.Error("the table was written anew")
		}
		e, err := f.Emails.Get(t.Context(), f.Acme.TeamID, kept)
		if want := f.Acme.Ref(); err != nil || e.Actor != want {
			t.Errorf("the email is of %+v, want %+v; %v", e.Actor, want, err)
		}
		f.exec(t, `INSERT INTO emails (id, team_id, api_key_id, domain_id, message_id, sender, subject, recipients, tags,
			topic_id, template_id, broadcast_id, last_event, rank, scheduled_at, created_at)
			SELECT 'copy', team_id, api_key_id, domain_id, message_id, sender, subject, recipients, tags, topic_id,
			template_id, broadcast_id, last_event, rank, scheduled_at, created_at FROM emails WHERE id = '`+kept+`'`)
		if n := f.Count(`SELECT COUNT(*) FROM emails WHERE id = 'copy' AND actor_kind = 'key'`); n != 1 {
			t.Error("what an older node writes is not of a key")
		}
		f.due(t, kept)
		f.due(t, orphan)
		f.release(t, func() bool {
			return f.state(kept) != emails.Scheduled && f.state(orphan) != emails.Scheduled
		})
		if state := f.state(kept); state != emails.Queued {
			t.Errorf("the email of a key is %s", state)
		}
		timeline, _, err := f.Emails.Timeline(t.Context(), f.Acme.TeamID, orphan, page.Page{})
		state := f.state(orphan)
		if err != nil || state != emails.Failed || !strings.Contains(timeline[len(timeline)-1].Data, "invalid_api_key") {
			t.Errorf("the email of a deleted key is %s: %+v, %v", state, timeline, err)
		}
	})
}

// Every kind of actor is stored in the row of an email.
func TestEmailsKnowTheirActor(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		for _, want := range []teams.ActorRef{f.Acme.Ref(), {Kind: teams.UserActor, ID: "u"},
			{Kind: teams.GrantActor, ID: "g"}, {Kind: teams.SystemActor}} {
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
