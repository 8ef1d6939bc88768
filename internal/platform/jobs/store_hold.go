package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// releaseMax is the maximum number of jobs that one call to Release makes due. Making that many jobs due occupies
// SQLite's only writer for a few milliseconds.
const releaseMax = 500

// Hold suspends the job until Release is called with the same key. Hold is for work that a user has paused. A held job
// occupies no worker, and a hold does not count as a try. The caller must ensure that Release for the key does not run
// before this transaction ends. A job that is held after the last Release waits forever.
func (q *Queue) Hold(ctx context.Context, tx *db.Tx, j Job, key string) {
	tx.QueueOne(ctx, lost("hold", j), `UPDATE jobs SET run_at = $3, set_at = $4, holder = NULL, held = $5, failures = 0
		WHERE id = $1 AND attempt = $2`, db.ID(j.ID), j.Attempt, int64(never), tx.Now().UnixMicro(), key)
}

// HoldUntil is like Hold, but the job also becomes due at the given time. HoldUntil stores j.Payload, which the caller
// may have changed, and stores the why parameter as the job's last error.
func (q *Queue) HoldUntil(ctx context.Context, tx *db.Tx, j Job, key string, until time.Time, why string) {
	tx.QueueOne(ctx, lost("hold", j), `UPDATE jobs SET run_at = $3, set_at = $4, holder = NULL, held = $5, payload = $6,
		last_error = $7, failures = 0 WHERE id = $1 AND attempt = $2`, db.ID(j.ID), j.Attempt, until.UnixMicro(),
		tx.Now().UnixMicro(), key, j.Payload, db.Text(why, whyMax))
	q.wake(tx, j.Kind, j.Lane, until)
}

// AnyHeld reports whether any job is held with the given key.
func (q *Queue) AnyHeld(ctx context.Context, r db.Reader, key string) (found bool, err error) {
	err = r.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM jobs WHERE held = $1 AND held <> '')`, key).Scan(&found)
	if err != nil {
		return false, fmt.Errorf("look for held jobs: %w", err)
	}
	return found, nil
}

// Release makes due up to 500 jobs that are held with the given key, and returns how many jobs became due. The time for
// which a job was held does not count towards its age. The caller repeats Release until it returns 0.
func (q *Queue) Release(ctx context.Context, tx *db.Tx, key string) (n int64, err error) {
	at := tx.Now().Add(-slack)
	rows, err := tx.Query(ctx, `UPDATE jobs SET held = '', run_at = $2, created_at = created_at + ($3 - set_at),
		set_at = $3 WHERE id IN (SELECT id FROM jobs WHERE held = $1 AND held <> '' ORDER BY id LIMIT $4)
		RETURNING kind, lane`, key, at.UnixMicro(), tx.Now().UnixMicro(), releaseMax)
	made, err := q.wakeLanes(tx, rows, err, at)
	if err != nil {
		return 0, fmt.Errorf("release jobs that are held: %w", err)
	}
	return int64(made), nil
}

// wakeLanes reads the kinds and lanes of jobs that have become due at the given time, wakes each lane once, and returns
// the number of jobs.
func (q *Queue) wakeLanes(tx *db.Tx, rows db.Rows, err error, at time.Time) (n int, _ error) {
	type laneKey struct{ kind, lane string }
	due := map[laneKey]bool{}
	all, err := db.Collect(rows, err, func(r db.Row) (p laneKey, err error) {
		err = r.Scan(&p.kind, &p.lane)
		due[p] = true
		return p, err
	})
	for p := range due {
		q.wake(tx, p.kind, p.lane, at)
	}
	return len(all), err
}
