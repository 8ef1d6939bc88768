package metrics

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// RetainCounts preserves the counts for sent or received emails whose events are about to be deleted. Call RetainCounts
// in the transaction that deletes the events, before the deletion. RetainCounts returns the emails whose events may be
// deleted now. An email is not returned if one of its events is not yet in the counters; that email can be deleted a
// few minutes later.
func RetainCounts(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) ([]string, error) {
	at, err := getState(ctx, tx.Reader, teamID)
	if err != nil {
		return nil, fmt.Errorf("read until when the events of team %s are counted: %w", teamID, err)
	}
	without, err := uncounted(ctx, tx.Reader, teamID, emailIDs, at.until)
	if err != nil {
		return nil, fmt.Errorf("find events of team %s that are not counted: %w", teamID, err)
	}
	released := slices.DeleteFunc(slices.Clone(emailIDs), func(emailID string) bool {
		return slices.Contains(without,
			emailID)
	})
	if len(released) > 0 {
		retainCounts(ctx, tx, teamID, released)
	}
	return released, nil
}
