package metrics

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// RetainCounts preserves the counts for sent emails whose events are about to be deleted. Call RetainCounts in the
// transaction that deletes the events, before the deletion. RetainCounts returns the emails whose events may be deleted
// now. An email is not returned if one of its events is not yet in the counters; that email can be deleted a few
// minutes later.
func RetainCounts(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) ([]string, error) {
	return retain(ctx, tx, teamID, emailIDs, uncounted, retainCounts)
}

// RetainReceived does for received emails that are about to be deleted what [RetainCounts] does for sent ones.
func RetainReceived(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string) ([]string, error) {
	return retain(ctx, tx, teamID, emailIDs, uncountedReceived, retainReceived)
}

// retain calls keep for those of the given emails that find does not return. The function find returns the emails that
// are not in the counters up to a time.
func retain(ctx context.Context, tx *db.Tx, teamID string, emailIDs []string,
	find func(context.Context, db.Reader, string, []string, int64) ([]string, error),
	keep func(context.Context, *db.Tx, string, []string)) ([]string, error) {
	at, err := getState(ctx, tx.Reader, teamID)
	if err != nil {
		return nil, fmt.Errorf("read until when the events of team %s are counted: %w", teamID, err)
	}
	without, err := find(ctx, tx.Reader, teamID, emailIDs, at.until)
	if err != nil {
		return nil, fmt.Errorf("find events of team %s that are not counted: %w", teamID, err)
	}
	released := slices.DeleteFunc(slices.Clone(emailIDs), func(emailID string) bool {
		return slices.Contains(without, emailID)
	})
	if len(released) > 0 {
		keep(ctx, tx, teamID, released)
	}
	return released, nil
}
