package metrics

import (
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/platform/db"
)

// releaseMost is the maximum number of emails whose events prevent Release.
const releaseMost = 10_000

// Release makes the counters of all slots final that ended a day ago, so that the events of the emails with ids in a
// range can be dropped in the same transaction. Release returns the emails whose events must be kept, because some of
// them are not counted yet. The caller adds further emails that it keeps. Events of the last day are added to the
// counts of deleted events. Received emails are not in the partitions that are dropped.
func (s *Service) Release(ctx context.Context, tx *db.Tx, from, to string, alsoKept []string) (kept []string,
	err error) {
	final := down(tx.Now().Add(-finality).UnixMicro())
	kept, err = uncountedBetween(ctx, tx.Reader, from, to, releaseMost+1)
	if err != nil {
		return nil, fmt.Errorf("find events that are not counted: %w", err)
	}
	if len(kept) > releaseMost {
		return nil, fmt.Errorf("events of more than %d emails are not counted yet: see why the job metrics fails",
			releaseMost)
	}
	kept = append(kept, alsoKept...)
	slices.Sort(kept)
	kept = slices.Compact(kept)
	retainBetween(ctx, tx, from, to, final, kept)
	setFinal(ctx, tx, final)
	return kept, nil
}
