package metrics

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/db"
)

// Keep is called by the transaction that deletes the events of some emails, sent or received, before it does so. What
// the events count stays counted. It returns those of the emails whose events may be deleted: the others have one that
// counters do not have yet, and may be deleted some minutes later.
func Keep(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) ([]string, error) {
	at, err := getState(ctx, tx.Reader, teamID)
	if err != nil {
		return nil, fmt.Errorf("look how far the events of team %s are counted: %w", teamID, err)
	}
	without, err := uncounted(ctx, tx.Reader, teamID, emailIDs, at.until)
	if err != nil {
		return nil, fmt.Errorf("look for events of team %s that are not counted: %w", teamID, err)
	}
	kept := slices.DeleteFunc(slices.Clone(emailIDs), func(emailID string) bool {
		return slices.Contains(without,
			emailID)
	})
	if len(kept) > 0 {
		keepCounts(ctx, tx, teamID, kept)
	}
	return kept, nil
}
