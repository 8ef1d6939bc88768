package domains

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const eraseRows = 200 // maximum number of rows deleted in one transaction

// EraseTeam deletes a team's domains and claims, which releases their names. EraseTeam records no events, because the
// team no longer exists.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, table := range []string{"domain_claims", "domains"} {
		err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) {
			s.invalidate(tx, teamID)
			return tx.Exec(ctx, `DELETE FROM `+table+` WHERE id IN (SELECT id FROM `+table+` WHERE team_id = $1 LIMIT $2)`,
				db.ID(teamID), eraseRows)
		})
		if err != nil {
			return fmt.Errorf("erase the %s of team %s: %w", table, teamID, err)
		}
	}
	return nil
}
