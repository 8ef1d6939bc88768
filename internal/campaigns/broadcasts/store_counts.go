package broadcasts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/platform/db"
)

// countShards is the number of rows over which a variant's counters are distributed on PostgreSQL. The database trigger
// that updates the counters uses the same number.
const countShards = 16

// insertCounts inserts the counter rows of a broadcast's variants when the broadcast starts. A database trigger updates
// the counters.
func insertCounts(ctx context.Context, tx *db.Tx, b *Broadcast) {
	shards := int64(countShards)
	if tx.OneWriter() {
		shards = 1
	}
	var variants, numbers []int64
	for v := range int64(max(1, len(b.Variants))) {
		for shard := range shards {
			variants, numbers = append(variants, v), append(numbers, shard)
		}
	}
	zero := int64(0)
	tx.QueueRows(ctx, `broadcast_counts (broadcast_id, variant, part, team_id, sent, delivered, bounced, hard, failed,
		suppressed, canceled, opened, clicked, complained, unsubscribed)`, "", db.ID(b.ID), variants, numbers,
		db.ID(b.TeamID), zero, zero, zero, zero, zero, zero, zero, zero, zero, zero, zero)
}

// tallyKey identifies a counter by variant and by the reason why contacts were left out.
type tallyKey struct {
	variant int
	reason  string // "" for contacts that got an email
}

// addEntered adds the counts for a page of contacts to the broadcast's counters. The broadcast must be locked.
func addEntered(ctx context.Context, tx *db.Tx, b *Broadcast, all map[tallyKey]int64) {
	for e, n := range all {
		tx.Queue(ctx, `INSERT INTO broadcast_entered (broadcast_id, variant, reason, team_id, contacts)
			VALUES ($1, $2, $3, $4, $5) ON CONFLICT (broadcast_id, variant, reason)
			DO UPDATE SET contacts = broadcast_entered.contacts + excluded.contacts`, db.ID(b.ID), e.variant, e.reason,
			db.ID(b.TeamID), n)
	}
}

// tallies returns three results: a broadcast's counts for each variant, the total number of permanent bounces (hard),
// and the number of contacts that were left out for each reason (leftOut). A contact that was deleted before its email
// was sent counts as left out, and not as entered. Emails that are being enqueued concurrently
// count as waiting.
func tallies(ctx context.Context, r db.Reader, teamID, broadcastID string) (all []Tally, hard int64,
	leftOut map[string]int64, err error) {
	of := func(variant int) *Tally {
		for len(all) <= variant {
			all = append(all, Tally{})
		}
		return &all[variant]
	}
	deleted := map[int]int64{}
	rows, err := r.Query(ctx, `SELECT variant, sent, delivered, bounced, hard, failed, suppressed, canceled, opened,
		clicked, complained, unsubscribed, left_out FROM broadcast_counts WHERE broadcast_id = $1 AND team_id = $2`,
		db.ID(broadcastID), db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var t Tally
		var variant int
		var inSent, permanent, left int64
		err = r.Scan(&variant, &inSent, &t.Delivered, &t.Bounced, &permanent, &t.Failed, &t.Suppressed, &t.Canceled,
			&t.Opened, &t.Clicked, &t.Complained, &t.Unsubscribed, &left)
		if err == nil {
			t.Sent = inSent + t.Delivered + t.Bounced
			of(variant).add(t)
			hard += permanent
			deleted[variant] += left
		}
		return none, err
	})
	if err != nil {
		return nil, 0, nil, fmt.Errorf("count the recipients of broadcast %s: %w", broadcastID, err)
	}
	leftOut = map[string]int64{}
	rows, err = r.Query(ctx, `SELECT variant, reason, contacts FROM broadcast_entered WHERE broadcast_id = $1
		AND team_id = $2`, db.ID(broadcastID), db.ID(teamID))
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var e tallyKey
		var n int64
		if err = r.Scan(&e.variant, &e.reason, &n); err != nil {
			return none, err
		}
		if e.reason == "" {
			of(e.variant).Entered += n
		} else {
			leftOut[e.reason] += n
		}
		return none, nil
	})
	if err != nil {
		return nil, 0, nil, fmt.Errorf("count the contacts of broadcast %s: %w", broadcastID, err)
	}
	for i := range all {
		t := &all[i]
		if n := deleted[i]; n > 0 { // these contacts got an email, but were deleted before it was sent
			t.Entered -= n
			leftOut[string(contacts.Deleted)] += n
		}
		t.Waiting = t.Entered - t.Sent - t.Failed - t.Suppressed - t.Canceled
	}
	return all, hard, leftOut, nil
}

// totalTally returns the sums of a broadcast's counts over all variants.
func totalTally(ctx context.Context, r db.Reader, teamID, broadcastID string) (all Tally, err error) {
	by, _, _, err := tallies(ctx, r, teamID, broadcastID)
	for _, t := range by {
		all.add(t)
	}
	return all, err
}

// add adds the counts of t2 to t.
func (t *Tally) add(t2 Tally) {
	t.Entered, t.Waiting, t.Sent = t.Entered+t2.Entered, t.Waiting+t2.Waiting, t.Sent+t2.Sent
	t.Delivered, t.Bounced, t.Failed = t.Delivered+t2.Delivered, t.Bounced+t2.Bounced, t.Failed+t2.Failed
	t.Suppressed, t.Canceled = t.Suppressed+t2.Suppressed, t.Canceled+t2.Canceled
	t.Opened, t.Clicked = t.Opened+t2.Opened, t.Clicked+t2.Clicked
	t.Complained, t.Unsubscribed = t.Complained+t2.Complained, t.Unsubscribed+t2.Unsubscribed
}

func deleteCounts(ctx context.Context, tx *db.Tx, teamID, broadcastID string) {
	tx.Queue(ctx, `DELETE FROM broadcast_counts WHERE broadcast_id = $1 AND team_id = $2`, db.ID(broadcastID),
		db.ID(teamID))
	tx.Queue(ctx, `DELETE FROM broadcast_entered WHERE broadcast_id = $1 AND team_id = $2`, db.ID(broadcastID),
		db.ID(teamID))
}
