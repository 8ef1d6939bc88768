package jobs

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// Statements for node rows and heartbeats.
const (
	updateBeat  = `UPDATE nodes SET beat = $2 WHERE id = $1`
	selectBeats = `SELECT id, beat FROM nodes`
	deleteNode  = `DELETE FROM nodes WHERE id = $1`
	deleteNodes = `DELETE FROM nodes`

	// insertNode also succeeds if the server commits an earlier registration, whose answer was lost, only now.
	insertNode = `INSERT INTO nodes (id, beat, started_at) VALUES ($1, $2, $3)
		ON CONFLICT (id) DO UPDATE SET beat = EXCLUDED.beat`

	// deleteDeadNode deletes a node's row unless the node has written another heartbeat.
	deleteDeadNode = `DELETE FROM nodes WHERE id = $1 AND beat = $2`
)

// Statements that make claimed jobs due.
const (
	// giveBackJob finds the job by its id. With the plain condition on the holder, PostgreSQL may read all jobs that the
	// node holds.
	giveBackJob = `UPDATE jobs SET run_at = $4, set_at = $5, holder = NULL WHERE id = $1 AND attempt = $2
		AND COALESCE(holder, id) = $3`
	releaseNodeJobs = `UPDATE jobs SET run_at = $2, set_at = $3, holder = NULL WHERE holder = $1
		RETURNING kind, lane`
	releaseAllJobs = `UPDATE jobs SET run_at = $1, set_at = $2, holder = NULL WHERE holder IS NOT NULL`
)

// Statements that find and restart waits whose start is in the future. The set_at column is 0 for times that a caller
// chose. The run_at column is at most slack before set_at, so that these waits are found by the index of the lanes.
// Most waiting jobs have been due for more than slack, and are not read.
const (
	selectKinds = `WITH RECURSIVE k (kind) AS (
	SELECT (SELECT kind FROM jobs WHERE holder IS NULL ORDER BY kind, lane, run_at LIMIT 1)
	UNION ALL
	SELECT (SELECT j.kind FROM jobs j WHERE j.kind > k.kind AND j.holder IS NULL
		ORDER BY j.kind, j.lane, j.run_at LIMIT 1)
	FROM k WHERE k.kind IS NOT NULL)
	SELECT kind FROM k WHERE kind IS NOT NULL`
	lanesToMend = lanesAfter + `
	SELECT l.lane, COALESCE((SELECT 1 FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane AND j.run_at > $4
		AND j.run_at < $5 AND j.holder IS NULL AND j.set_at > $6 AND NOT j.parked AND j.held = ''
		ORDER BY j.run_at LIMIT 1), 0)
	FROM l WHERE l.lane IS NOT NULL LIMIT $3`
	restartWaits = `UPDATE jobs SET run_at = $1 + (run_at - set_at), set_at = $1 WHERE kind = $3 AND lane = ANY($4)
		AND run_at > $5 AND run_at < $6 AND holder IS NULL AND set_at > $2 AND NOT parked AND held = ''`
)

// kindsInQueue returns the kinds of the jobs that no node holds.
func (r *Runner) kindsInQueue(ctx context.Context) ([]string, error) {
	rows, err := r.d.Query(ctx, selectKinds)
	return db.Collect(rows, err, func(r db.Row) (kind string, err error) { return kind, r.Scan(&kind) })
}

// lanesToMend reads some lanes of a kind, beginning after a given lane. It returns the lanes that have a wait to
// restart, the last lane that it read, and whether more lanes may follow.
func (r *Runner) lanesToMend(ctx context.Context, kind, after string) (lanes []string, last string,
	more bool, err error) {
	now, n := r.d.Now(), 0
	rows, err := r.d.Query(ctx, lanesToMend, kind, after, scanPage, now.Add(stepMin-slack).UnixMicro(), int64(inHand),
		now.Add(stepMin).UnixMicro())
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var mend int
		if err = r.Scan(&last, &mend); mend == 1 {
			lanes = append(lanes, last)
		}
		n++
		return none, err
	})
	return lanes, last, n == scanPage, err
}
