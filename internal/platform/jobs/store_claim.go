package jobs

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// selectHeld finds the jobs of a kind that a node has claimed.
const selectHeld = `SELECT id, lane, attempt FROM jobs WHERE kind = $1 AND holder = $2`

// claimed is the last part of a claim statement: it updates the due jobs and returns them. A claim ends a hold, because
// a job that is held until a given time may become due without a call to Release.
const claimed = ` UPDATE jobs SET run_at = $1, attempt = attempt + 1, holder = $2, held = ''
	WHERE id IN (SELECT id FROM due)
	RETURNING id, lane, team_id, payload, attempt, tries, failures, last_error, created_at`

// On PostgreSQL, one statement claims jobs from all lanes, because each statement requires a round trip. SQLite does
// not support LATERAL, which the statement for PostgreSQL uses. On SQLite, each lane that claims many jobs has its own
// statement, whose three temporary tables take about as much time as reading ten rows. For lanes that claim few jobs,
// two additional statements claim one job per lane.
const (
	claimLane = `WITH due AS MATERIALIZED (SELECT id FROM jobs WHERE kind = $3 AND run_at <= $4 AND holder = ''
		AND lane = $5 ORDER BY run_at LIMIT $6)` + claimed
	claimLanes = `WITH due AS MATERIALIZED (SELECT j.id
	FROM UNNEST(CAST($5 AS TEXT[]), CAST($6 AS BIGINT[])) AS l (lane, n)
	CROSS JOIN LATERAL (SELECT id FROM jobs WHERE kind = $3 AND run_at <= $4 AND holder = '' AND lane = l.lane
		ORDER BY run_at LIMIT l.n FOR UPDATE SKIP LOCKED) AS j)` + claimed
	selectFirsts = `WITH l (lane) AS (SELECT UNNEST(CAST($3 AS TEXT[])))
	SELECT j.id, j.lane, j.team_id, j.payload, j.attempt + 1, j.tries, j.failures, j.last_error, j.created_at
	FROM l JOIN jobs j ON j.id = (SELECT id FROM jobs WHERE kind = $1 AND run_at <= $2 AND holder = '' AND lane = l.lane
		ORDER BY run_at LIMIT 1)`
	claimFirsts = `UPDATE jobs SET run_at = $1, attempt = attempt + 1, holder = $2, held = '' WHERE id = ANY($3)`
)

// claim claims up to n due jobs from each lane for a node and returns them grouped by lane. The result may contain
// fewer jobs than are due.
func claim(ctx context.Context, tx *db.Tx, kind, node string, asks []ask) (map[string][]Job, error) {
	all := make(map[string][]Job, len(asks))
	now := tx.Now().UnixMicro()
	collect := func(text string, args ...any) error {
		rows, err := tx.Query(ctx, text, args...)
		_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
			j := Job{Kind: kind}
			var created int64
			err := r.Scan(&j.ID, &j.Lane, &j.TeamID, &j.Payload, &j.Attempt, &j.Tries, &j.Failures, &j.LastError, &created)
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
		lanes, n := make([]string, len(asks)), make([]int64, len(asks))
		for i, a := range asks {
			lanes[i], n[i] = a.lane, int64(a.n)
		}
		return all, collect(claimLanes, int64(inHand), node, kind, now, lanes, n)
	}
	var few, ids []string
	for _, a := range asks {
		if a.n <= laneFirst {
			few = append(few, a.lane)
		}
	}
	if len(few) > 0 {
		if err := collect(selectFirsts, kind, now, few); err != nil {
			return nil, err
		}
		for _, lane := range all {
			ids = append(ids, lane[0].ID)
		}
		tx.Queue(ctx, claimFirsts, int64(inHand), node, ids)
	}
	for _, a := range asks {
		if a.n > laneFirst {
			if err := collect(claimLane, int64(inHand), node, kind, now, a.lane, a.n); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// nextDue returns the due time of each lane's next unclaimed job. Lanes without an unclaimed job are omitted.
func nextDue(ctx context.Context, tx *db.Tx, kind string, lanes []string) (map[string]int64, error) {
	all := map[string]int64{}
	if len(lanes) == 0 {
		return all, nil
	}
	rows, err := tx.Query(ctx, `WITH l (lane) AS (SELECT UNNEST(CAST($3 AS TEXT[])))
		SELECT l.lane, (SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane AND j.run_at < $2) FROM l`,
		kind, int64(inHand), lanes)
	_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
		var lane string
		var at *int64
		err := r.Scan(&lane, &at)
		if at != nil {
			all[lane] = *at
		}
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("look when lanes are due: %w", err)
	}
	return all, nil
}
