package members

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

const sweepRows = 500 // rows deleted per transaction

// Sweep deletes invitations that expired more than 30 days ago.
func (s *Service) Sweep(ctx context.Context) error {
	before := s.now().Add(-inviteKept)
	err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteExpired(ctx, tx, before, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete old invitations: %w", err)
	}
	return nil
}

// EraseTeam deletes a team's memberships and invitations. The users stay.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	for _, step := range []func(context.Context, *db.Tx, string, int) (int64, error){deleteInvitations,
		deleteMemberships} {
		err := s.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return step(ctx, tx, teamID, sweepRows) })
		if err != nil {
			return fmt.Errorf("erase the members of team %s: %w", teamID, err)
		}
	}
	return nil
}
