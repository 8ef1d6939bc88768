package jobs

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Cron is recurring work. It has one job, which stays in the queue permanently: each run moves it to the next time. Any
// node may claim the job, and it never runs twice at the same time. If all nodes were down for several intervals, it
// runs once for all of them. The job of a cron is never parked.
type Cron struct {
	Name  string
	Every time.Duration
	Run   func(ctx context.Context) error
}

// cronWait is the wait before a cron runs again after an error, unless its regular time comes first.
const cronWait = time.Minute

// Cron registers recurring work. Call it before Run.
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

// insertCrons inserts the job of each cron. If an earlier, longer interval left a job too late, insertCrons moves it to
// the next time.
func (r *Runner) insertCrons(ctx context.Context, tx *db.Tx) {
	for _, c := range r.crons {
		kind := "cron." + c.Name
		next := tx.Now().Truncate(c.Every).Add(c.Every)
		r.q.Insert(ctx, tx, New{Kind: kind, Dedupe: c.Name, RunAt: next})
		tx.Queue(ctx, rescheduleCron, kind, next.UnixMicro(), false, tx.Now().UnixMicro())
	}
}
