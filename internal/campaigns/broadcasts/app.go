package broadcasts

import (
	"context"
	"errors"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// appMaySend reports whether the sender of a broadcast may still send it. For a connected app, the app's grant is
// looked up; other senders are not checked.
func (s *Service) appMaySend(ctx context.Context, teamID string, by teams.ActorRef) (bool, error) {
	if by.Kind != teams.GrantActor {
		return true, nil
	}
	may, err := s.p.Teams.GrantMaySend(ctx, teamID, by.ID, teams.DueSend{Bulk: true})
	if err != nil {
		return false, fmt.Errorf("look up the grant with which a broadcast was sent: %w", err)
	}
	return may, nil
}

// decideForApp returns the decision about the emails of a broadcast that is being sent. If the broadcast was sent by a
// connected app that may no longer send broadcasts, decideForApp pauses the broadcast and withholds its emails. The
// check is needed in addition to the check before each page, because a broadcast may have many queued emails after its
// last page.
func (s *Service) decideForApp(ctx context.Context, broadcastID string) (emails.Decision, error) {
	teamID, by, err := senderOf(ctx, s.p.DB.Reader, broadcastID)
	if errors.Is(err, db.ErrNoRows) {
		return emails.Deliver, nil
	}
	if err != nil {
		return emails.Deliver, fmt.Errorf("read the sender of broadcast %s: %w", broadcastID, err)
	}
	if may, err := s.appMaySend(ctx, teamID, by); err != nil || may {
		return emails.Deliver, err
	}
	return emails.Withhold, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		b, err := lock(ctx, tx, teamID, broadcastID)
		if err != nil || b.Status != Queued || b.by != by {
			return err // a person has paused, canceled or resumed the broadcast
		}
		s.pause(ctx, tx, &b, AppNotAllowed)
		return s.notifyTeam(ctx, tx, &b)
	})
}
