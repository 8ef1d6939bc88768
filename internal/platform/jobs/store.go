package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	jobColumns = `jobs (id, kind, lane, team_id, dedupe, payload, run_at, attempt, holder, parked, last_error, created_at,
	set_at)`
	jobValues = `$1, $2, $3, $4, $5, $6, $7, 0, NULL, $8, '', $9, $10`
)

var insertJob = db.InsertStatement(jobColumns, jobValues, `UUID TEXT TEXT UUID TEXT TEXT BIGINT BOOLEAN BIGINT BIGINT`)

// insertUnique inserts a job with a dedupe key.
const insertUnique = `INSERT INTO ` + jobColumns + ` VALUES (` + jobValues + `)` + orRevive

// orRevive makes a parked job with the same kind and key due. A job that is waiting or claimed is not changed.
const orRevive = ` ON CONFLICT (kind, dedupe) WHERE dedupe <> '' DO UPDATE SET parked = excluded.parked, failures = 0,
	run_at = excluded.run_at, set_at = excluded.set_at WHERE jobs.parked`

// finishJob deletes a job at the end of an attempt, as the following statements do.
var finishJob = db.NewRowStatement(`DELETE FROM jobs WHERE id = $1 AND attempt = $2`, `DELETE FROM jobs
	USING UNNEST(CAST($1 AS UUID[]), CAST($2 AS INTEGER[])) AS u (id, attempt)
	WHERE jobs.id = ANY($1) AND jobs.id = u.id AND jobs.attempt = u.attempt`)

// Statements that end an attempt to run a job. Each of these statements changes the job only if the attempt column
// still has the given value.
const (
	retryJob = `UPDATE jobs SET run_at = $3, set_at = $5, holder = NULL, last_error = $4, tries = tries + 1,
		failures = 0 WHERE id = $1 AND attempt = $2`
	waitJob = `UPDATE jobs SET run_at = $3, set_at = $5, holder = NULL, last_error = $4, failures = 0
		WHERE id = $1 AND attempt = $2`
	failJob = `UPDATE jobs SET run_at = $3, set_at = $5, holder = NULL, last_error = $4, failures = failures + 1
		WHERE id = $1 AND attempt = $2`
	parkJob = `UPDATE jobs SET run_at = $3, holder = NULL, parked = $4, last_error = $5,
		failures = failures + 1 WHERE id = $1 AND attempt = $2`
)

// Statements that change or delete a team's unclaimed jobs by their dedupe key, or jobs of no team.
const (
	removeJob = `DELETE FROM jobs WHERE kind = $1 AND dedupe = $2 AND dedupe <> '' AND holder IS NULL
		AND team_id IS NOT DISTINCT FROM $3`
	removeJobs = `DELETE FROM jobs WHERE kind = $1 AND dedupe = ANY($2) AND dedupe <> '' AND holder IS NULL
		AND team_id IS NOT DISTINCT FROM $3`
	// removeOthers deletes the waiting jobs of a kind whose dedupe keys are not among the given ones.
	removeOthers = `DELETE FROM jobs WHERE kind = $1 AND dedupe <> '' AND dedupe <> ALL($2) AND holder IS NULL`
	moveJob      = `UPDATE jobs SET run_at = $3, set_at = 0, parked = $4,
		failures = CASE WHEN parked THEN 0 ELSE failures END WHERE kind = $1 AND dedupe = $2 AND dedupe <> ''
		AND holder IS NULL AND team_id IS NOT DISTINCT FROM $5`
)

const (
	selectParkedLane = `SELECT kind, lane FROM jobs WHERE id = $1 AND parked`
	unparkJob        = `UPDATE jobs SET parked = $2, failures = 0, run_at = $3, set_at = $4 WHERE id = $1
			AND parked`
)

// rescheduleCron sets the due time of a cron's job. It changes only a job that is due later than the given time, or
// whose due time a caller chose.
const rescheduleCron = `UPDATE jobs SET run_at = $2, set_at = $4, parked = $3 WHERE kind = $1 AND holder IS NULL
			AND (run_at > $2 OR set_at = 0)`

// lanesAfter selects the lanes of a kind after a given lane, in the order of their names. For MIN(lane), PostgreSQL
// would read all jobs of the kind if its statistics are old.
const lanesAfter = `WITH RECURSIVE l (lane) AS (
	SELECT (SELECT lane FROM jobs WHERE kind = $1 AND lane > $2 AND holder IS NULL ORDER BY lane, run_at LIMIT 1)
	UNION ALL
	SELECT (SELECT j.lane FROM jobs j WHERE j.kind = $1 AND j.lane > l.lane AND j.holder IS NULL
		ORDER BY j.lane, j.run_at LIMIT 1)
	FROM l WHERE l.lane IS NOT NULL)`

// scanLanes and scanLanesOnce read the lanes after a given lane, each with the time at which its first unclaimed job is
// due. On PostgreSQL, scanLanesOnce needs one index look-up per lane, so that it reads the entries of ended jobs only
// once. SQLite does not support LATERAL. It needs two look-ups, and it has no such entries.
const (
	scanLanes = lanesAfter + `
	SELECT l.lane, (SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane AND j.holder IS NULL)
	FROM l WHERE l.lane IS NOT NULL LIMIT $3`
	scanLanesOnce = `WITH RECURSIVE l (lane, run_at) AS (
	(SELECT lane, run_at FROM jobs WHERE kind = $1 AND lane > $2 AND holder IS NULL ORDER BY lane, run_at LIMIT 1)
	UNION ALL
	SELECT j.lane, j.run_at FROM l CROSS JOIN LATERAL (SELECT lane, run_at FROM jobs WHERE kind = $1 AND lane > l.lane
		AND holder IS NULL ORDER BY lane, run_at LIMIT 1) AS j)
	SELECT lane, run_at FROM l LIMIT $3`
)

// Parked describes a parked job.
type Parked struct {
	ID, Kind, Lane, TeamID, LastError string
	Failures                          int // number of consecutive errors
	CreatedAt                         time.Time
}

// ParkedJobs returns up to limit parked jobs, oldest first, starting after the given id.
func ParkedJobs(ctx context.Context, r db.Reader, after string, limit int) ([]Parked, error) {
	rows, err := r.Query(ctx, `SELECT id, kind, lane, team_id, last_error, failures, created_at FROM jobs
		WHERE parked AND id > $1 ORDER BY id LIMIT $2`, db.OrNoID(after), limit)
	return db.Collect(rows, err, scanParked)
}

func scanParked(r db.Row) (p Parked, err error) {
	var created int64
	err = r.Scan((*db.ID)(&p.ID), &p.Kind, &p.Lane, (*db.ID)(&p.TeamID), &p.LastError, &p.Failures, &created)
	p.CreatedAt = db.Time(created)
	return p, err
}

// LastParked returns up to limit parked jobs, newest first.
func LastParked(ctx context.Context, r db.Reader, limit int) ([]Parked, error) {
	rows, err := r.Query(ctx, `SELECT id, kind, lane, team_id, last_error, failures, created_at FROM jobs
		WHERE parked ORDER BY id DESC LIMIT $1`, limit)
	return db.Collect(rows, err, scanParked)
}

// Waiting contains the job counts for one kind.
type Waiting struct {
	Kind    string
	Jobs    int
	Parked  int
	DueFrom time.Time // earliest due time of a waiting job; zero if all jobs are claimed or parked
}

// Stats counts jobs by kind, for operators. The query in Stats reads the whole queue.
func Stats(ctx context.Context, r db.Reader) ([]Waiting, error) {
	// The run_at of a job that was due at once is before set_at, by slack.
	rows, err := r.Query(ctx, `SELECT kind, COUNT(*), COUNT(*) FILTER (WHERE parked),
		MIN(CASE WHEN run_at < set_at THEN set_at ELSE run_at END) FROM jobs GROUP BY kind ORDER BY kind`)
	return db.Collect(rows, err, func(r db.Row) (w Waiting, err error) {
		var first int64
		err = r.Scan(&w.Kind, &w.Jobs, &w.Parked, &first)
		if first < inHand {
			w.DueFrom = db.Time(first)
		}
		return w, err
	})
}

// CountWaiting returns the number of jobs of one kind, regardless of their state.
func CountWaiting(ctx context.Context, r db.Reader, kind string) (n int, err error) {
	if err := r.QueryRow(ctx, `SELECT (SELECT COUNT(*) FROM jobs WHERE kind = $1 AND holder IS NULL) +
		(SELECT COUNT(*) FROM jobs WHERE kind = $1 AND holder IS NOT NULL)`, kind).Scan(&n); err != nil {
		return 0, fmt.Errorf("count the jobs of kind %s: %w", kind, err)
	}
	return n, nil
}
