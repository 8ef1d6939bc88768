package jobs

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// selectHeld finds the jobs of a kind that a node has claimed.
const selectHeld = `SELECT id, lane, attempt FROM jobs WHERE kind = $1 AND holder = $2`

// take and taken are parts of the claim statements: they update the due jobs and return them. A claim ends a hold,
// because a job that is held until a given time may become due without a call to Release.
const (
	take  = `UPDATE jobs SET run_at = $1, attempt = attempt + 1, holder = $2, held = ''`
	taken = ` RETURNING id, lane, team_id, payload, attempt, tries, failures, last_error, created_at`
)

// On PostgreSQL, one statement claims jobs from all lanes, because each statement requires a round trip. The statement
// reads each lane only from a given time, because an index may have entries of any number of ended jobs before it. It
// updates the rows that it has locked by their places, which saves a look-up of each id. For each lane with an
// unclaimed job, the statement also returns a row without an id and the due time of that job, which another
// transaction may have locked.
//
// SQLite has no entries of ended jobs, and it does not support LATERAL, which the statement for PostgreSQL uses. On
// SQLite, each lane that claims many jobs has its own statement, whose three temporary tables take about as much time
// as reading ten rows. For lanes that claim few jobs, two additional statements claim one job per lane.
const (
	// planOnce makes PostgreSQL keep its plan of the claim in each connection, because making the plan takes longer than
	// the claim. The plan must use the index of lanes even if the table was nearly empty when the plan was made;
	// enable_seqscan is off in all sessions.
	planOnce = `SELECT set_config('plan_cache_mode', 'force_generic_plan', TRUE),
	set_config('enable_bitmapscan', 'off', TRUE)`
	claimLanes = `WITH l AS (
	SELECT lane, n, first FROM UNNEST(CAST($5 AS TEXT[]), CAST($6 AS BIGINT[]), CAST($7 AS BIGINT[])) AS l (lane, n, first)),
	due AS MATERIALIZED (SELECT j.place FROM l CROSS JOIN LATERAL (SELECT ctid AS place FROM jobs WHERE kind = $3
		AND lane = l.lane AND run_at >= l.first AND run_at <= $4 AND holder IS NULL ORDER BY run_at LIMIT l.n
		FOR UPDATE SKIP LOCKED) AS j),
	claimed AS (` + take + ` WHERE ctid = ANY(ARRAY(SELECT place FROM due))` + taken + `)
	SELECT id, lane, team_id, payload, attempt, tries, failures, last_error, created_at FROM claimed
	UNION ALL
	SELECT CAST(NULL AS UUID), l.lane, CAST(NULL AS UUID), '', 0, 0, 0, '', j.run_at
	FROM l CROSS JOIN LATERAL (SELECT run_at FROM jobs
		WHERE kind = $3 AND lane = l.lane AND run_at >= l.first AND run_at < $1 AND holder IS NULL
			AND id NOT IN (SELECT id FROM claimed)
		ORDER BY run_at LIMIT 1) AS j`
	claimLane = `WITH due AS MATERIALIZED (SELECT id FROM jobs WHERE kind = $3 AND run_at <= $4 AND holder IS NULL
		AND lane = $5 ORDER BY run_at LIMIT $6) ` + take + ` WHERE id IN (SELECT id FROM due)` + taken
	selectFirsts = `WITH l (lane) AS (SELECT UNNEST(CAST($3 AS TEXT[])))
	SELECT j.id, j.lane, j.team_id, j.payload, j.attempt + 1, j.tries, j.failures, j.last_error, j.created_at
	FROM l JOIN jobs j ON j.id = (SELECT id FROM jobs WHERE kind = $1 AND run_at <= $2 AND holder IS NULL
		AND lane = l.lane ORDER BY run_at LIMIT 1)`
	claimFirsts = take + ` WHERE id = ANY($3)`
)

// claim claims up to n due jobs from each lane for a node and returns them grouped by lane. The result may contain
// fewer jobs than are due. The next result contains the due time of each lane's first unclaimed job, or an earlier
// time; lanes without an unclaimed job are omitted.
func claim(ctx context.Context, tx *db.Tx, kind, node string, asks []ask) (all map[string][]Job,
	next map[string]int64, err error) {
	all, next = make(map[string][]Job, len(asks)), map[string]int64{}
	now := tx.Now().UnixMicro()
	collect := func(text string, args ...any) error {
		rows, err := tx.Query(ctx, text, args...)
		_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
			j := Job{Kind: kind}
			var created int64
			err := r.Scan((*db.ID)(&j.ID), &j.Lane, (*db.ID)(&j.TeamID), &j.Payload, &j.Attempt, &j.Tries, &j.Failures,
				&j.LastError, &created)
			if j.ID == "" {
				next[j.Lane] = created
				return struct{}{}, err
			}
			j.CreatedAt = db.Time(created)
			all[j.Lane] = append(all[j.Lane], j)
			return struct{}{}, err
		})
		if err != nil {
			return fmt.Errorf("claim jobs: %w", err)
		}
		return nil
	}
	if !tx.OneWriter() {
		lanes, n, from := make([]string, len(asks)), make([]int64, len(asks)), make([]int64, len(asks))
		for i, a := range asks {
			lanes[i], n[i], from[i] = a.lane, int64(a.n), a.from
		}
		tx.Queue(ctx, planOnce)
		return all, next, collect(claimLanes, int64(inHand), db.ID(node), kind, now, lanes, n, from)
	}
	var few, ids []string
	for _, a := range asks {
		if a.n <= laneFirst {
			few = append(few, a.lane)
		}
	}
	if len(few) > 0 {
		if err := collect(selectFirsts, kind, now, few); err != nil {
			return nil, nil, err
		}
		for _, lane := range all {
			ids = append(ids, lane[0].ID)
		}
		tx.Queue(ctx, claimFirsts, int64(inHand), db.ID(node), db.IDs(ids))
	}
	for _, a := range asks {
		if a.n > laneFirst {
			if err := collect(claimLane, int64(inHand), db.ID(node), kind, now, a.lane, a.n); err != nil {
				return nil, nil, err
			}
		}
	}
	var short []string // lanes that probably have no more due jobs
	for _, a := range asks {
		if len(all[a.lane]) < a.n {
			short = append(short, a.lane)
		} else {
			next[a.lane] = a.from
		}
	}
	return all, next, nextDue(ctx, tx, kind, short, next)
}

// nextDue adds the due time of each lane's next unclaimed job to next. Lanes without an unclaimed job are omitted.
func nextDue(ctx context.Context, tx *db.Tx, kind string, lanes []string, next map[string]int64) error {
	if len(lanes) == 0 {
		return nil
	}
	rows, err := tx.Query(ctx, `WITH l (lane) AS (SELECT UNNEST(CAST($3 AS TEXT[])))
		SELECT l.lane, (SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane AND j.run_at < $2
			AND j.holder IS NULL) FROM l`,
		kind, int64(inHand), lanes)
	_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
		var lane string
		var at *int64
		err := r.Scan(&lane, &at)
		if at != nil {
			next[lane] = *at
		}
		return struct{}{}, err
	})
	if err != nil {
		return fmt.Errorf("look when lanes are due: %w", err)
	}
	return nil
}
