package broadcasts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// appMaySend reports whether the sender of a broadcast may still send it. For a connected app, the app's grant is
// looked up; other senders are not checked.
func (s *Service) appMaySend(ctx context.Context, r db.Reader, teamID string, by teams.ActorRef) (bool, error) {
	if by.Kind != teams.GrantActor {
		return true, nil
	}
	may, err := s.p.Teams.GrantMaySend(ctx, r, teamID, by.ID, teams.DueSend{Bulk: true})
	if err != nil {
		return false, fmt.Errorf("look up the grant with which a broadcast was sent: %w", err)
	}
	return may, nil
}
