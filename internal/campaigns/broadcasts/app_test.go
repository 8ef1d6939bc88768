package broadcasts_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
)

// changes are the changes after which a connected app may no longer send broadcasts.
var changes = map[string]func(s *sender, user, app teams.Actor){
	"revoked": func(s *sender, _, app teams.Actor) {
		_, err := s.Grants.Revoke(s.T.Context(), app.TeamID, app.ID, grants.FromAPI)
		s.Must(err)
	},
	"needs approval": func(s *sender, _, app teams.Actor) { s.Limit(app, grants.Limits{Approval: true}) },
	"limited":        func(s *sender, _, app teams.Actor) { s.Limit(app, grants.Limits{Recipients: 150}) },
	"demoted": func(s *sender, user, _ teams.Actor) {
		s.SetRole(user, teams.Viewer)
	},
}

// A scheduled broadcast of a connected app is paused when it is due if the app may no longer send broadcasts. A person
// can resume the broadcast.
func TestScheduledBroadcastOfApp(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				user := s.Member(s.Acme.TeamID, "ann@acme.example", teams.Admin)
				app, _ := s.Connect(user, "full_access", grants.Limits{})
				s.readers(3)
				id := s.draft(s.news())
				_, err := s.b.Send(t.Context(), app, id, "in 1 hour")
				s.Must(err)
				change(s, user, app)
				s.Update(func(tx *db.Tx) error {
					now := s.DB.Now().UnixMicro() - 1
					tx.Queue(t.Context(), `UPDATE broadcasts SET scheduled_at = $1 WHERE id = $2`, now, db.ID(id))
					tx.Queue(t.Context(), `UPDATE jobs SET run_at = $1 WHERE kind = 'broadcast'`, now)
					return nil
				})
				s.Run(s.b.Kinds()...)
				s.until(id, broadcasts.Paused)
				if b := s.broadcast(id); b.Reason != broadcasts.AppNotAllowed || b.Entered != 0 {
					t.Errorf("paused for %q with %d entered", b.Reason, b.Entered)
				}
				testnode.Until(t, "the team is notified", func() bool {
					return strings.Contains(s.notifications(), broadcasts.AppNotAllowed.Message())
				})
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.walked(id, 3)
			})
		})
	}
}

// If a connected app may no longer send broadcasts, the queued emails of its broadcast are withheld, even after the
// last page. The emails are sent after a person has resumed the broadcast.
func TestQueuedEmailsOfApp(t *testing.T) {
	t.Parallel()
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				user := s.Member(s.Acme.TeamID, "ann@acme.example", teams.Admin)
				app, _ := s.Connect(user, "full_access", grants.Limits{})
				s.readers(3)
				id := s.draft(s.news())
				_, err := s.b.Send(t.Context(), app, id, "")
				s.Must(err)
				s.enqueued(id, 3)
				change(s, user, app)
				s.runAll()
				s.until(id, broadcasts.Paused)
				if b := s.broadcast(id); b.Reason != broadcasts.AppNotAllowed {
					t.Errorf("paused for %q", b.Reason)
				}
				s.held(3, id)
				s.mustCount(0, `SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`)
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.held(0, id)
			})
		})
	}
}
