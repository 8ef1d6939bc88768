package broadcasts

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// stopKind is the kind of job that pauses the broadcasts of a sender that may no longer send. Such a job is enqueued
// only if the sender has more broadcasts than one transaction pauses.
const stopKind = "broadcast.stop"

// everyActor stands for all actors of a team.
var everyActor teams.ActorRef

// stopMax is the maximum number of broadcasts that one transaction pauses.
const stopMax = 100

// obstacle returns the reason why the sender of a broadcast may not send at present, or "" if the sender may send. The
// domain of the From address is checked separately; see Service.domainObstacle.
func (s *Service) obstacle(ctx context.Context, b *Broadcast) (Reason, error) {
	team, err := s.p.Teams.Get(ctx, b.TeamID)
	if err != nil {
		return "", err
	}
	if team.Suspended {
		return TeamSuspended, nil
	}
	may, err := s.appMaySend(ctx, b.TeamID, b.by)
	if err != nil {
		return "", err
	}
	if !may {
		return AppNotAllowed, nil
	}
	active, err := s.p.Teams.Active(ctx, b.TeamID, b.by)
	if err != nil {
		return "", fmt.Errorf("look up who sent broadcast %s: %w", b.ID, err)
	}
	if !active {
		return KeyDeleted, nil
	}
	return "", nil
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
	ids, err := sendingBroadcasts(ctx, tx.Reader, teamID, by, stopMax)
	if err != nil {
		return false, fmt.Errorf("find the broadcasts of a sender that may no longer send: %w", err)
	}
	why := KeyDeleted
	if by == everyActor {
		why = TeamSuspended
	}
	for _, broadcastID := range ids {
		b, err := lock(ctx, tx, teamID, broadcastID)
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

// stopSender handles jobs of the kind stopKind. If the team may send again in the meantime, stopSender pauses nothing.
func (s *Service) stopSender(ctx context.Context, j jobs.Job) error {
	var by teams.ActorRef
	if err := json.Unmarshal([]byte(j.Payload), &by); err != nil {
		return fmt.Errorf("read the sender whose broadcasts pause: %w", err)
	}
	for more := true; more; {
		why, err := s.obstacle(ctx, &Broadcast{TeamID: j.TeamID, by: by})
		if err != nil {
			return err
		}
		if why == "" {
			break
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
