package broadcasts_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A suspension and the deletion of an API key pause the sender's broadcasts before the call returns. This includes a
// broadcast that has enqueued all its emails. Withheld emails wait until somebody resumes the broadcast.
func TestSenderStopPausesAtOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		stop   func(s *sender) error
		mend   func(s *sender)
		reason broadcasts.Reason
	}{
		"suspended": {
			stop:   func(s *sender) error { return s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, true) },
			mend:   func(s *sender) { s.Must(s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, false)) },
			reason: broadcasts.TeamSuspended,
		},
		"key deleted": {
			stop:   func(s *sender) error { return s.Teams.DeleteKey(s.T.Context(), s.Acme.TeamID, s.Acme.ID) },
			mend:   func(s *sender) { s.Acme = teams.System(s.Acme.TeamID) },
			reason: broadcasts.KeyDeleted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				const n = 40
				id := s.entered(n)
				other := s.otherSender()
				s.Must(c.stop(s))
				if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != c.reason {
					t.Fatalf("it is %s, with the reason %q", b.Status, b.Reason)
				}
				if notices := s.notifications(); strings.Count(notices, c.reason.Message()) != 1 {
					t.Errorf("the notices are %q", notices)
				}
				if b, err := s.b.Get(t.Context(), s.Other.TeamID, other); err != nil || b.Status != broadcasts.Queued {
					t.Errorf("another team's broadcast is %s, %v", b.Status, err)
				}
				s.runAll()
				s.held(n, id)
				s.mustCount(0, `SELECT COUNT(a.outcome) FROM email_events a JOIN emails e ON e.id = a.email_id
					WHERE e.broadcast_id = $1`, db.ID(id))
				c.mend(s)
				if b := s.broadcast(id); b.Status != broadcasts.Paused {
					t.Errorf("it went on by itself: %s", b.Status)
				}
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.until(id, broadcasts.Sent)
				s.mustCount(n, `SELECT COUNT(*) FROM emails WHERE broadcast_id = $1 AND last_event = 5 /* delivered */`, db.ID(id))
			})
		})
	}
}

// otherSender creates a broadcast of the team Other that is being sent, although its job never runs.
func (s *sender) otherSender() (broadcastID string) {
	s.T.Helper()
	ctx := s.T.Context()
	s.Verified(s.Other.TeamID, domains.NewDomain{Name: "other.example"})
	n := s.news()
	n.SegmentID, n.From = s.newSegment(s.Other.TeamID), "news@other.example"
	b, err := s.b.CreateAndSend(ctx, s.Other, n, "in 1 hour")
	s.Must(err)
	s.Update(func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE broadcasts SET status = 'queued' WHERE id = $1`, db.ID(b.ID))
		return err
	})
	return b.ID
}

// copies inserts n copies of a broadcast with other statuses and keys.
func (s *sender) copies(broadcastID string, n int, of func(i int) (status, keyID string)) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		for i := range n {
			status, keyID := of(i)
			if _, err := tx.Exec(s.T.Context(), `INSERT INTO broadcasts (id, team_id, name, segment_id, topic_id,
				preview_text, content_id, options, status, reason, guarded, actor_kind, actor_id, revision, created_at,
				updated_at, scheduled_at, started_at, sent_at, position, phase, winner, next_at, entered, left_out)
				SELECT $1, team_id, name, segment_id, topic_id,
				preview_text, content_id, options, $2, reason, guarded, actor_kind, $3, revision, created_at, updated_at,
				scheduled_at, started_at, sent_at, position, phase, winner, next_at, entered, left_out FROM broadcasts
				WHERE id = $4`, db.ID(fmt.Sprintf("%s%012x", broadcastID[:24], i)), status,
				db.ID(keyID), db.ID(broadcastID)); err != nil {
				return err
			}
		}
		return nil
	})
}

// If a sender has more broadcasts than one transaction pauses, a job pauses the others. A broadcast of another key and
// a broadcast that a user has paused stay as they are.
func TestSenderStopPausesManyBroadcasts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const n = 250
		s.readers(1)
		id := s.draft(s.news())
		s.send(id)
		key, _ := s.Key(s.Acme.TeamID, teams.NewKey{Name: "other"})
		s.copies(id, n+2, func(i int) (status, keyID string) {
			switch i {
			case n:
				return "queued", key.ID
			case n + 1:
				return "paused", s.Acme.ID
			}
			return "queued", s.Acme.ID
		})
		s.Must(s.Teams.DeleteKey(t.Context(), s.Acme.TeamID, s.Acme.ID))
		s.mustCount(100, `SELECT COUNT(*) FROM broadcasts WHERE status = 'paused' AND reason = 'api_key_deleted'`)
		s.Run(s.b.Kinds()...)
		testnode.Until(t, "all are paused", func() bool {
			return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE status = 'paused' AND reason = 'api_key_deleted'`) == n+1
		})
		s.mustCount(1, `SELECT COUNT(*) FROM broadcasts WHERE status = 'queued'`)
		s.mustCount(1, `SELECT COUNT(*) FROM broadcasts WHERE status = 'paused' AND reason = ''`)
	})
}

// A broadcast cannot be resumed for a suspended team, so that none of its withheld emails is released.
func TestSuspendedTeamDoesNotResume(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		id := s.entered(3)
		s.Must(s.Teams.SetSuspended(t.Context(), s.Acme.TeamID, true))
		by, err := s.Teams.Authenticate(t.Context(), s.Token)
		s.Must(err)
		if err := s.b.Resume(t.Context(), by, id); fault.KindOf(err) != fault.Suspended {
			t.Errorf("resumed: %v", err)
		}
		s.mustCount(0, `SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.release'`)
	})
}
