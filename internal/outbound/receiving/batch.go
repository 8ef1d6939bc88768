package receiving

import (
	"context"

	"github.com/postrider/postrider/internal/platform/erasure"
)

// BatchFrom reads the team's next 2,000 received emails after a cursor, newest first, and returns those whose From or
// return path is the given address. BatchFrom also returns the cursor for the following batch, or "" after the last
// batch.
func (s *Service) BatchFrom(ctx context.Context, teamID string, a erasure.Address, after string) (some []Email,
	next string, err error) {
	found, next, err := listBatchFrom(ctx, s.p.DB.Reader, teamID, a, after)
	for _, e := range found {
		if a.Is(e.From) || a.In(e.Origin.MailFrom) {
			some = append(some, e)
		}
	}
	return some, next, err
}
