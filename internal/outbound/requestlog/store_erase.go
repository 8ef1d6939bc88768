package requestlog

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// lastID is greater than the ids of all entries.
const lastID = "ffffffff-ffff-ffff-ffff-ffffffffffff"

// EraseTeam deletes the entries of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteBefore(ctx, tx, teamID, lastID, sweepRows) })
	if err != nil {
		return fmt.Errorf("erase the request log of team %s: %w", teamID, err)
	}
	return nil
}
