package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// backlogMax is the maximum number of jobs that Backlog counts.
const backlogMax = 1_000_000

// Backlog describes the waiting jobs of a kind. Jobs that a node has claimed, parked jobs, and jobs that are held
// without a time are not counted.
type Backlog struct {
	Due, Later int64         // number of jobs that are due, and of those that are due later
	Oldest     time.Duration // how long the oldest due job has been due; 0 if no job is due
}

// countBacklog counts the waiting jobs of a kind by class, and finds the lane whose first job has been due longest. It
// reads only the index jobs_due. Jobs that are due immediately have a run_at at least an hour in the past (see slack).
// The column recent is therefore the earliest run_at of the other jobs that became due within the last hour, but for
// its first minute (recentMargin).
const countBacklog = `WITH x AS (SELECT lane, run_at FROM jobs WHERE kind = $1 AND holder IS NULL
		AND run_at < ` + inHandText + ` ORDER BY lane, run_at LIMIT $5),
	l AS (SELECT lane, COUNT(*) AS n, SUM(CASE WHEN run_at <= $2 THEN 1 ELSE 0 END) AS due, MIN(run_at) AS first,
		MIN(CASE WHEN run_at > $3 AND run_at <= $2 THEN run_at END) AS recent FROM x GROUP BY lane),
	c AS (SELECT lane LIKE $4 AS bulk, lane, n, due, first, recent FROM l)
	SELECT bulk, CAST(SUM(n) AS BIGINT), CAST(SUM(due) AS BIGINT), MIN(first), MIN(recent),
		(SELECT o.lane FROM c o WHERE o.bulk = c.bulk ORDER BY o.first LIMIT 1) FROM c GROUP BY bulk`

// recentMargin separates jobs that became due almost an hour ago from jobs that are due immediately and were inserted
// after the measurement began, or by a node whose clock is ahead.
const recentMargin = time.Minute

const inHandText = `9223372036854775806`

// selectSetAt finds when the first job of a lane was made due.
const selectSetAt = `SELECT run_at, set_at FROM jobs WHERE kind = $1 AND lane = $2 AND run_at >= $3 AND holder IS NULL
	ORDER BY run_at LIMIT 1`

// MeasureBacklog counts the waiting jobs of a kind. The second result is about the bulk lanes, whose names end with the
// suffix bulk; if bulk is "", no lane is one. MeasureBacklog reads an index of all waiting jobs of the kind, which takes
// some 100 ms for a million jobs, so it is not for requests. Each count stops at a million.
func MeasureBacklog(ctx context.Context, r db.Reader, kind, bulk string, now time.Time) (single, bulky Backlog,
	err error) {
	pattern := "%" + bulk
	if bulk == "" {
		pattern = ""
	}
	type class struct {
		bulk          bool
		n, due, first int64
		recent        *int64
		lane          string
	}
	rows, err := r.Query(ctx, countBacklog, kind, now.UnixMicro(), now.Add(recentMargin-slack).UnixMicro(), pattern, backlogMax)
	classes, err := db.Collect(rows, err, func(r db.Row) (c class, err error) {
		err = r.Scan(&c.bulk, &c.n, &c.due, &c.first, &c.recent, &c.lane)
		return c, err
	})
	if err != nil {
		return single, bulky, fmt.Errorf("count the waiting jobs of kind %s: %w", kind, err)
	}
	for _, c := range classes {
		b := Backlog{Due: c.due, Later: c.n - c.due}
		if c.due > 0 {
			since, err := dueSince(ctx, r, kind, c.lane, c.first)
			if err != nil {
				return single, bulky, err
			}
			if c.recent != nil {
				since = min(since, *c.recent)
			}
			b.Oldest = max(now.Sub(time.UnixMicro(since)), 0)
		}
		if c.bulk {
			bulky = b
		} else {
			single = b
		}
	}
	return single, bulky, nil
}

// dueSince returns since when the first job of a lane has been due. If the job is gone, the result is now or later.
func dueSince(ctx context.Context, r db.Reader, kind, lane string, first int64) (int64, error) {
	rows, err := r.Query(ctx, selectSetAt, kind, lane, first)
	all, err := db.Collect(rows, err, func(r db.Row) (since int64, err error) {
		var runAt, setAt int64
		err = r.Scan(&runAt, &setAt)
		return max(runAt, setAt), err
	})
	if err != nil {
		return 0, fmt.Errorf("find the oldest due job of kind %s: %w", kind, err)
	}
	if len(all) == 0 {
		return inHand, nil
	}
	return all[0], nil
}

// parkedMax is the maximum number of parked jobs that CountParked counts.
const parkedMax = 10_000

// CountParked counts the parked jobs by kind, of at most 10,000.
func CountParked(ctx context.Context, r db.Reader) (map[string]int64, error) {
	rows, err := r.Query(ctx, `SELECT kind, COUNT(*) FROM (SELECT kind FROM jobs WHERE parked ORDER BY id LIMIT $1) x
		GROUP BY kind`, parkedMax)
	all := map[string]int64{}
	_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
		var kind string
		var n int64
		err := r.Scan(&kind, &n)
		all[kind] = n
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("count the parked jobs: %w", err)
	}
	return all, nil
}
