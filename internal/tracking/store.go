package tracking

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/db"
)

// recorded returns the ids of those events of a batch that are stored, of any team.
func recorded(ctx context.Context, r db.Reader, emailIDs []string, batch []*waiting) (map[string]bool, error) {
	var ids []string
	for _, w := range batch {
		if w.unsure {
			ids = append(ids, w.eventID)
		}
	}
	found := map[string]bool{}
	rows, err := r.Query(ctx, `SELECT id FROM email_events WHERE email_id = ANY($1) AND id = ANY($2)`, emailIDs, ids)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var eventID string
		err = r.Scan(&eventID)
		found[eventID] = true
		return none, err
	})
	if err != nil {
		return nil, fmt.Errorf("look which opens and clicks are recorded: %w", err)
	}
	return found, nil
}
