package contacts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
)

// unsubscribedAmong adds the addresses whose contacts are unsubscribed.
func unsubscribedAmong(ctx context.Context, r db.Reader, teamID string, addresses []string,
	refused map[string]Refusal) error {
	rows, err := r.Query(ctx, `SELECT c.address FROM contacts c WHERE c.team_id = $1 AND c.address = ANY($2)
		AND c.unsubscribed`, teamID, addresses)
	all, err := db.Collect(rows, err, scanText)
	if err != nil {
		return fmt.Errorf("look up who is unsubscribed: %w", err)
	}
	for _, address := range all {
		refused[address] = Unsubscribed
	}
	return nil
}
