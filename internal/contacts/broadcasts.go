package contacts

import (
	"context"
	"slices"

	"github.com/postrider/postrider/internal/db"
)

// UnsubscribedAmong returns those of some addresses, in lower case, whose contacts are unsubscribed from broadcasts,
// each with the reason for which it is not mailed.
func (s *Service) UnsubscribedAmong(ctx context.Context, r db.Reader, teamID string, addresses []string) (
	map[string]Refusal, error) {
	refused := map[string]Refusal{}
	for some := range slices.Chunk(addresses, 500) {
		if err := unsubscribedAmong(ctx, r, teamID, some, refused); err != nil {
			return nil, err
		}
	}
	return refused, nil
}
