package jobs

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Cron is recurring work. A cron has one job that stays in the queue permanently: each run sets the time of the next
// run. Any node may claim the job, and the job never runs twice at the same time. If all nodes were down for several
// intervals, the job runs only once for all these intervals. A cron's job is never parked.
type Cron struct {
	Name  string
	Every time.Duration
	Run   func(ctx context.Context) error
}

// cronWait is the delay before a cron runs again after an error, unless the cron's regular time is earlier.
const cronWait = time.Minute

// Cron registers recurring work. Cron must be called before Run.
func (r *Runner) Cron(c Cron) {
	r.crons = append(r.crons, c)
	k := Kind{Name: "cron." + c.Name, Workers: 1, Lease: 15 * time.Minute, Schedule: []time.Duration{cronWait},
		Endless: true}
	k.Handle = func(ctx context.Context, j Job) error {
		err := c.Run(ctx)
		next := r.d.Now().Truncate(c.Every).Add(c.Every)
		why := ""
		if err != nil {
			r.log.Error("recurring work failed", "cron", c.Name, "error", err)
			if soon := r.d.Now().Add(cronWait); soon.Before(next) {
				next = soon
			}
			why = err.Error()
		}
		return r.d.Update(ctx, func(tx *db.Tx) error {
			r.q.Retry(ctx, tx, j, next, why)
			return nil
		})
	}
	r.Handle(k)
}

// insertCrons inserts each cron's job. If a job's next run is too late because an earlier release had a longer
// interval, insertCrons makes the next run earlier.
func (r *Runner) insertCrons(ctx context.Context, tx *db.Tx) {
	for _, c := range r.crons {
		kind := "cron." + c.Name
		next := tx.Now().Truncate(c.Every).Add(c.Every)
		r.q.Insert(ctx, tx, New{Kind: kind, Dedupe: c.Name, RunAt: next})
		tx.Queue(ctx, rescheduleCron, kind, next.UnixMicro(), false, tx.Now().UnixMicro())
	}
}
