package node

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/backfill"
)

// backfillPause is the time between two attempts to complete the backfills.
const backfillPause = time.Minute

// backfills lists the work that migrations left to the background, in the order of the migrations.
var backfills []backfill.Backfill

// backfill completes the backfills, unless ctx ends before.
func (n *Node) backfill(ctx context.Context) error {
	for ctx.Err() == nil {
		err := backfill.Run(ctx, n.DB, backfills...)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			n.Log.Warn("the background work of a migration is not complete; trying again", "in", backfillPause, "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(backfillPause):
		}
	}
	return nil
}
