package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// Cron is recurring work. A cron has one job that stays in the queue permanently: each run sets the time of the next
// run. Any node may claim the job, and the job never runs twice at the same time. If all nodes were down for several
// intervals, the job runs only once for all these intervals. A cron's job is never parked.
//
// A cron with RunPart instead of Run has one job for each of its parts. A node runs one part of a cron at a time, so
// that several nodes share the parts. An error in one part does not delay the other parts.
type Cron struct {
	Name  string
	Every time.Duration
	Run   func(ctx context.Context) error

	// RunPart runs one of Parts parts. If only one node can use the database, the work is not divided.
	RunPart func(ctx context.Context, p Part) error
	Parts   int
}

// Part is one part of work that is divided into Of parts. N is from 0 to Of - 1.
type Part struct{ N, Of int }

// Whole is the part that contains all the work.
var Whole = Part{0, 1}

// Range returns the part's range of the numbers from 0 to 2^31 - 1: the numbers greater than after, up to last. The
// ranges of all parts are equally long and contain each number once.
func (p Part) Range() (after, last int64) {
	const numbers = 1 << 31
	return int64(p.N)*numbers/int64(p.Of) - 1, int64(p.N+1)*numbers/int64(p.Of) - 1
}

func (p Part) String() string { return fmt.Sprintf("%d/%d", p.N, p.Of) }

// parsePart returns the part that a job's payload names. A job of a build that did not divide the work has no part in
// its payload, and is for the whole work.
func parsePart(payload string) Part {
	var p Part
	if _, err := fmt.Sscanf(payload, "%d/%d", &p.N, &p.Of); err != nil || p.N < 0 || p.N >= p.Of {
		return Whole
	}
	return p
}

// cronWait is the delay before a cron runs again after an error, unless the cron's regular time is earlier.
const cronWait = time.Minute

// Cron registers recurring work. Cron must be called before Run.
func (r *Runner) Cron(c Cron) {
	r.crons = append(r.crons, c)
	k := Kind{Name: "cron." + c.Name, Workers: 1, Lease: 15 * time.Minute, Schedule: []time.Duration{cronWait},
		Endless: true}
	k.Handle = func(ctx context.Context, j Job) error {
		part := parsePart(j.Payload)
		var err error
		if c.RunPart != nil {
			err = c.RunPart(ctx, part)
		} else {
			err = c.Run(ctx)
		}
		next := r.d.Now().Truncate(c.Every).Add(c.Every)
		why := ""
		if err != nil {
			r.log.Error("recurring work failed", "cron", c.Name, "part", part.String(), "error", err)
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

// jobs returns the dedupe keys of a cron's jobs, with the payload of each. A key contains the number of parts, so that
// jobs of another number of parts are not mistaken for these.
func (c *Cron) jobs(alone bool) (dedupes, payloads []string) {
	if c.RunPart == nil || alone || c.Parts < 2 {
		return []string{c.Name}, []string{""}
	}
	for n := range c.Parts {
		part := Part{n, c.Parts}.String()
		dedupes, payloads = append(dedupes, c.Name+"."+part), append(payloads, part)
	}
	return dedupes, payloads
}

// insertCrons inserts each cron's jobs. If a job's next run is too late because an earlier release had a longer
// interval, insertCrons makes the next run earlier. Jobs of another number of parts are deleted, unless a node has
// claimed them: these are deleted at the next start, and until then, their work is done twice. If nodes with different
// numbers of parts run, all of them run the jobs of the node that started last, because each job names its part.
func (r *Runner) insertCrons(ctx context.Context, tx *db.Tx) {
	for i := range r.crons {
		c := &r.crons[i]
		kind := "cron." + c.Name
		next := tx.Now().Truncate(c.Every).Add(c.Every)
		dedupes, payloads := c.jobs(r.d.Alone())
		tx.Queue(ctx, removeOthers, kind, dedupes)
		for n, dedupe := range dedupes {
			r.q.Insert(ctx, tx, New{Kind: kind, Dedupe: dedupe, Payload: payloads[n], RunAt: next})
		}
		tx.Queue(ctx, rescheduleCron, kind, next.UnixMicro(), false, tx.Now().UnixMicro())
	}
}
