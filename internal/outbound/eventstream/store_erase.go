package eventstream

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// EraseTeam deletes all messages and the lease of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		tx.Queue(ctx, `DELETE FROM live_tails WHERE team_id = $1`, db.ID(teamID))
		return tx.Exec(ctx, `DELETE FROM live_messages WHERE team_id = $1 AND id IN
			(SELECT id FROM live_messages WHERE team_id = $1 ORDER BY id LIMIT $2)`, db.ID(teamID), sweepRows)
	})
	if err != nil {
		return fmt.Errorf("erase the event stream of team %s: %w", teamID, err)
	}
	return nil
}
