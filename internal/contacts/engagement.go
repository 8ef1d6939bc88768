package contacts

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/db"
)

// Mailed notes that contacts of a team are sent an email each, by a broadcast or an automation.
func (s *Service) Mailed(ctx context.Context, tx *db.Tx, teamID string, contactIDs []string) {
	if len(contactIDs) > 0 {
		countMailed(ctx, tx, teamID, slices.Sorted(slices.Values(contactIDs)))
	}
}
