package suppressions

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const eraseRows = 500 // maximum number of rows deleted in one transaction

// EraseTeam deletes a team's suppressions.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) {
		return tx.Exec(ctx, `DELETE FROM suppressions WHERE id IN (SELECT id FROM suppressions WHERE team_id = $1 LIMIT $2)`,
			db.ID(teamID), eraseRows)
	})
	if err != nil {
		return fmt.Errorf("erase the suppressions of team %s: %w", teamID, err)
	}
	return nil
}
