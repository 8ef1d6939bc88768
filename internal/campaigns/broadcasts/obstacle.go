package broadcasts

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// stopKind is the kind of job that pauses the broadcasts of a sender that may no longer send. Such a job is enqueued
// only if the sender has more broadcasts than one transaction pauses.
const stopKind = "broadcast.stop"

// everyActor stands for all actors of a team.
var everyActor teams.ActorRef

// stopMax is the maximum number of broadcasts that one transaction pauses.
const stopMax = 100

// obstacle returns the reason why the sender of a broadcast may not send at present, or "" if the sender may send. If
// the team was deleted, obstacle returns a NotFound fault. The domain of the From address is checked separately; see
// Service.domainObstacle.
func (s *Service) obstacle(ctx context.Context, r db.Reader, b *Broadcast) (Reason, error) {
	team, err := s.p.Teams.GetIn(ctx, r, b.TeamID)
	if err != nil {
		return "", err
	}
	return s.obstacleIn(ctx, r, team, b)
}

// obstacleIn is obstacle for a team that has been read.
func (s *Service) obstacleIn(ctx context.Context, r db.Reader, team teams.Team, b *Broadcast) (Reason, error) {
	if team.Suspended {
		return TeamSuspended, nil
	}
	may, err := s.appMaySend(ctx, r, b.TeamID, b.by)
	if err != nil {
		return "", err
	}
	if !may {
		return AppNotAllowed, nil
	}
	active, err := s.p.Teams.Active(ctx, r, b.TeamID, b.by)
	if err != nil {
		return "", fmt.Errorf("look up who sent broadcast %s: %w", b.ID, err)
	}
	if !active {
		return KeyDeleted, nil
	}
	return "", nil
}

// lockSender returns a fault if an actor may not send broadcasts at present. The actor may come from a cache, so its
// rights are looked up again. Until the transaction ends, the team cannot be suspended, and the actor's key cannot be
// deleted: either happens before, and the caller fails, or afterwards, and pauses the broadcast that the caller sends.
// The caller must not have locked a broadcast yet.
func (s *Service) lockSender(ctx context.Context, tx *db.Tx, by teams.Actor) error {
	team, err := s.p.Teams.LockSenders(ctx, tx, by.TeamID)
	if err != nil {
		return err
	}
	why, err := s.obstacleIn(ctx, tx.Reader, team, &Broadcast{TeamID: by.TeamID, by: by.Ref()})
	switch {
	case err != nil || why == "":
		return err
	case why == TeamSuspended:
		return fault.New(fault.Suspended, "", "This team is suspended. Ask the operator why.")
	case why == KeyDeleted && by.Kind == teams.KeyActor:
		return fault.New(fault.BadCredential, "", "API key is invalid")
	case why == AppNotAllowed && !by.Scopes.Has(teams.EmailsSend):
		// An app whose scopes suffice to resume a broadcast, but not to send, may resume it. The broadcast then pauses
		// again with the reason AppNotAllowed before it sends anything.
		active, err := s.p.Teams.Active(ctx, tx.Reader, by.TeamID, by.Ref())
		if err != nil || active {
			return err
		}
	}
	return fault.Forbiddenf("", "This app may not send broadcasts any more: it was revoked or limited, or the role of "+
		"the person who connected it was lowered. Let a person send the broadcast.")
}

// decide returns the current decision about a broadcast's emails. If the broadcast is being sent and its sender may no
// longer send, decide pauses the broadcast and withholds its emails. This check is needed in addition to the check
// before each page, because a broadcast may have many queued emails after its last page.
//
// A broadcast that has ended cannot pause. Its remaining emails, which mail hosts have deferred, fail if the team is
// suspended. They are sent even if the API key or app that sent the broadcast was removed, like other accepted emails.
// The results variants contain the current contents of a broadcast whose emails may be delivered.
func (s *Service) decide(ctx context.Context, teamID, broadcastID string) (d emails.Decision, variants []Variant,
	err error) {
	read, err := senderOf(ctx, s.p.DB.Reader, teamID, broadcastID)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return emails.Deliver, nil, nil // the broadcast does not exist because its team is being erased
	case err != nil:
		return emails.Deliver, nil, fmt.Errorf("read the sender of broadcast %s: %w", broadcastID, err)
	case read.Status == Sent:
		team, err := s.p.Teams.GetIn(ctx, s.p.DB.Reader, read.TeamID)
		if err == nil && team.Suspended {
			return emails.Refuse, nil, nil
		}
		if fault.KindOf(err) == fault.NotFound {
			err = nil // the team was deleted, and its emails are being erased
		}
		return emails.Deliver, read.Variants, err
	case read.Status != Queued:
		return decisionFor(read.Status), read.Variants, nil
	}
	why, err := s.obstacle(ctx, s.p.DB.Reader, &read)
	if fault.KindOf(err) == fault.NotFound {
		return emails.Deliver, nil, nil // the team was deleted, and its emails are being erased
	}
	if err != nil || why == "" {
		return emails.Deliver, read.Variants, err
	}
	return emails.Withhold, nil, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, read.TeamID, broadcastID)
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		if err != nil || b.Status != Queued || b.by != read.by {
			return err // a person has paused, canceled or resumed the broadcast
		}
		s.pause(ctx, tx, &b, why)
		return s.notifyTeam(ctx, tx, &b)
	})
}

// OnSenderStop pauses all broadcasts of a sender that are being sent. The caller suspends the team or deletes the
// sender's API key in the same transaction. The zero value of by stands for the whole team.
func (s *Service) OnSenderStop(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) error {
	more, err := s.pauseSome(ctx, tx, teamID, by)
	if err != nil || !more {
		return err
	}
	payload, err := json.Marshal(by)
	if err != nil {
		return fmt.Errorf("encode the sender whose broadcasts pause: %w", err)
	}
	s.p.Queue.Insert(ctx, tx, jobs.New{Kind: stopKind, Lane: teamID, TeamID: teamID, Payload: string(payload)})
	return nil
}

// pauseSome pauses up to stopMax broadcasts of a sender, and reports whether the sender may have more of them.
func (s *Service) pauseSome(ctx context.Context, tx *db.Tx, teamID string, by teams.ActorRef) (more bool, err error) {
	ids, err := sendingBroadcasts(ctx, tx.Reader, teamID, by, "", stopMax)
	if err != nil {
		return false, fmt.Errorf("find the broadcasts of a sender that may no longer send: %w", err)
	}
	why := KeyDeleted
	if by == everyActor {
		why = TeamSuspended
	}
	for _, broadcastID := range ids {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if fault.KindOf(err) == fault.NotFound {
			continue // the broadcast was erased after it was found
		}
		if err != nil {
			return false, err
		}
		if b.Status != Queued || why == KeyDeleted && b.by != by {
			continue // the broadcast was changed after it was found
		}
		s.pause(ctx, tx, &b, why)
		if err := s.notifyTeam(ctx, tx, &b); err != nil {
			return false, err
		}
	}
	return len(ids) == stopMax, nil
}

// stopSender handles jobs of the kind stopKind. If the team was suspended and may send again in the meantime,
// stopSender pauses nothing more. A deleted key never comes back, so all of its broadcasts pause. If the team was
// deleted, nothing is left to do.
func (s *Service) stopSender(ctx context.Context, j jobs.Job) error {
	var by teams.ActorRef
	if err := json.Unmarshal([]byte(j.Payload), &by); err != nil {
		return fmt.Errorf("read the sender whose broadcasts pause: %w", err)
	}
	for more := true; more; {
		team, err := s.p.Teams.Get(ctx, j.TeamID)
		if fault.KindOf(err) == fault.NotFound || err == nil && by == everyActor && !team.Suspended {
			break
		}
		if err != nil {
			return err
		}
		if err := s.p.DB.Update(ctx, func(tx *db.Tx) (err error) {
			more, err = s.pauseSome(ctx, tx, j.TeamID, by)
			return err
		}); err != nil {
			return err
		}
	}
	return s.p.Queue.End(ctx, j)
}
