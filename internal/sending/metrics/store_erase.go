package metrics

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const eraseSlots = 100 // maximum number of slots or entries deleted in one transaction

// EraseTeam deletes a team's counters. Callers must delete the team's events and received emails first, because RollUp
// would otherwise count them again.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, text := range []string{
		`DELETE FROM email_counts WHERE team_id = $1 AND slot IN (SELECT slot FROM email_counts WHERE team_id = $1
			ORDER BY slot LIMIT $2)`,
		`DELETE FROM email_counts_kept WHERE team_id = $1 AND slot IN (SELECT slot FROM email_counts_kept WHERE team_id = $1
			ORDER BY slot LIMIT $2)`,
		`DELETE FROM email_counts_late WHERE team_id = $1 AND id IN (SELECT id FROM email_counts_late WHERE team_id = $1
			ORDER BY id LIMIT $2)`,
		`DELETE FROM email_counts_until WHERE team_id IN (SELECT team_id FROM email_counts_until WHERE team_id = $1
			LIMIT $2)`,
	} {
		err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return tx.Exec(ctx, text, db.ID(teamID), eraseSlots) })
		if err != nil {
			return fmt.Errorf("erase the counters of team %s: %w", teamID, err)
		}
	}
	return nil
}
