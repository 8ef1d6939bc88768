package receiving

import (
	"context"

	"github.com/postrider/postrider/internal/platform/erasure"
)

// BatchFrom reads a part of what a team received from an address, by From or return path: of its next 2,000 received
// emails after a cursor those that come from there, newest first. next is the cursor of the part that follows, ""
// after the last.
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
