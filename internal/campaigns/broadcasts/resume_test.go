package broadcasts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// stops are the changes after which an actor that a node has cached may no longer send.
var stops = map[string]struct {
	stop   func(s *sender) error
	kind   fault.Kind
	reason broadcasts.Reason
}{
	"suspended": {
		stop: func(s *sender) error { return s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, true) },
		kind: fault.Suspended, reason: broadcasts.TeamSuspended,
	},
	"key deleted": {
		stop: func(s *sender) error { return s.Teams.DeleteKey(s.T.Context(), s.Acme.TeamID, s.Acme.ID) },
		kind: fault.BadCredential, reason: broadcasts.KeyDeleted,
	},
}

// An actor that was read before it lost the right to send can neither resume nor send a broadcast.
func TestCachedActorDoesNotSend(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				id := s.entered(5)
				draft := s.draft(s.news())
				s.Must(c.stop(s))
				if err := s.b.Resume(t.Context(), s.Acme, id); fault.KindOf(err) != c.kind {
					t.Errorf("resumed: %v", err)
				}
				if _, err := s.b.Send(t.Context(), s.Acme, draft, ""); fault.KindOf(err) != c.kind {
					t.Errorf("sent: %v", err)
				}
				if _, err := s.b.CreateAndSend(t.Context(), s.Acme, s.news(), ""); fault.KindOf(err) != c.kind {
					t.Errorf("created and sent: %v", err)
				}
				if b := s.broadcast(id); b.Status != broadcasts.Paused || b.Reason != c.reason {
					t.Errorf("it is %s, with the reason %q", b.Status, b.Reason)
				}
				s.mustCount(2, `SELECT COUNT(*) FROM broadcasts`)
				s.mustCount(0, `SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.release'`)
			})
		})
	}
}

// A request to resume a broadcast that runs at the same time as a suspension or the deletion of a key waits and fails.
func TestResumeWaitsForSenderStop(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				id := s.entered(5)
				s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
				resumed := make(chan error, 1)
				s.Teams.OnSenderStop = func(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) error {
					err := s.b.OnSenderStop(ctx, tx, teamID, by)
					go func() { resumed <- s.b.Resume(context.Background(), s.Acme, id) }()
					return errors.Join(err, s.blocked(tx, resumed))
				}
				s.Must(c.stop(s))
				if err := <-resumed; fault.KindOf(err) != c.kind {
					t.Errorf("resumed: %v", err)
				}
				if b := s.broadcast(id); b.Status != broadcasts.Paused {
					t.Errorf("it is %s", b.Status)
				}
			})
		})
	}
}

// blocked waits until a transaction blocks another one, or until the other one has ended. On SQLite, a transaction
// blocks all others.
func (s *sender) blocked(tx *db.Tx, ended chan error) error {
	for waits := 0; waits == 0 && len(ended) == 0 && !tx.OneWriter(); {
		if err := s.DB.QueryRow(s.T.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND datname = current_database()`).Scan(&waits); err != nil {
			return err
		}
	}
	return nil
}

// A broadcast that is being sent although its sender may not send pauses, even after its last page. Either its job or
// package delivery detects this.
func TestLateCheckOfSender(t *testing.T) {
	t.Parallel()
	for name, c := range stops {
		for worker, kinds := range map[string]func(s *sender) []jobs.Kind{
			"job":      func(s *sender) []jobs.Kind { return s.b.Kinds() },
			"delivery": func(s *sender) []jobs.Kind { return []jobs.Kind{s.delivery()} },
		} {
			t.Run(name+", "+worker, func(t *testing.T) {
				t.Parallel()
				each(t, func(t *testing.T, s *sender) {
					const n = 40
					id := s.entered(n)
					s.Teams.OnSenderStop = func(context.Context, *db.Tx, string, teams.ActorRef) error { return nil }
					s.Must(c.stop(s))
					s.Run(kinds(s)...)
					s.until(id, broadcasts.Paused)
					if b := s.broadcast(id); b.Reason != c.reason {
						t.Errorf("the reason is %q", b.Reason)
					}
					if worker == "delivery" {
						s.held(n, id)
					}
					s.mustCount(0, `SELECT COUNT(*) FROM email_events WHERE outcome IS NOT NULL`)
				})
			})
		}
	}
}

// The job that pauses the rest of a sender's broadcasts ends if the team was restored or deleted in the meantime.
func TestSenderStopJobEnds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		by     teams.ActorRef
		change func(s *sender) error
	}{
		"restored": {teams.ActorRef{}, func(s *sender) error {
			return s.Teams.SetSuspended(s.T.Context(), s.Acme.TeamID, false)
		}},
		"team deleted": {teams.ActorRef{}, func(s *sender) error {
			return s.Teams.Delete(s.T.Context(), s.Queue, s.Acme.TeamID)
		}},
		"team of the key deleted": {teams.ActorRef{Kind: teams.KeyActor, ID: "k"}, func(s *sender) error {
			return s.Teams.Delete(s.T.Context(), s.Queue, s.Acme.TeamID)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				payload := `{"Kind":"` + string(c.by.Kind) + `","ID":"` + c.by.ID + `"}`
				s.Update(func(tx *db.Tx) error {
					s.Queue.Insert(t.Context(), tx, jobs.New{Kind: "broadcast.stop", Lane: s.Acme.TeamID,
						TeamID: s.Acme.TeamID, Payload: payload})
					return nil
				})
				s.Must(c.change(s))
				s.Run(s.b.Kinds()...)
				s.ended("broadcast.stop")
			})
		})
	}
}

// A broadcast that is erased while its sender or its domain loses the right to send does not make that change fail.
func TestErasedBroadcastDoesNotFailStop(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(s *sender) error{
		"suspended":      stops["suspended"].stop,
		"key deleted":    stops["key deleted"].stop,
		"domain deleted": func(s *sender) error { return s.Domains.Delete(s.T.Context(), s.Acme.TeamID, s.Sender.ID) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				id := s.entered(3)
				stopped := make(chan error, 1)
				s.Update(func(tx *db.Tx) error {
					if _, err := tx.Exec(t.Context(), `DELETE FROM broadcasts WHERE id = $1`, db.ID(id)); err != nil {
						return err
					}
					go func() { stopped <- stop(s) }()
					return s.blocked(tx, stopped)
				})
				s.Must(<-stopped)
			})
		})
	}
}
