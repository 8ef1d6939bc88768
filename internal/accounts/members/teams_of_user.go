package members

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// TeamsOf returns the ids of a user's teams.
func (s *Service) TeamsOf(ctx context.Context, r db.Reader, userID string) ([]string, error) {
	all, err := teamsOf(ctx, r, userID)
	ids := make([]string, len(all))
	for i := range all {
		ids[i] = all[i].TeamID
	}
	return ids, err
}
