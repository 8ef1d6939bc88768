package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/id"
)

// Kind says how jobs of one kind are worked.
type Kind struct {
	Name string

	// Handle does the work. It ends its job with Finish, Retry or Park in the transaction that records the effect. If it
	// returns an error, the job is retried by Schedule. Its context ends with the lease, or when stopping takes too long.
	Handle func(ctx context.Context, j Job) error

	Workers int // jobs in hand at most on this node
	PerLane int // and of one group of lanes; where it has several owners, up to twice as many. 0 means Workers

	// Group names the group that shares PerLane; nil makes each lane a group.
	Group func(lane string) string

	// Owner names whose work a lane is, usually its team. Owners share Workers as package fair says, so one owner alone
	// gets no more than 7/8 of them, and have turns. Within a group each may have in hand what stays free of twice its
	// limit. nil makes each lane an owner of its own, and PerLane exact.
	Owner func(lane string) string

	// Limit, when set, says how many jobs of a group may be in hand now, and when to ask again if that is fewer than there
	// could be. It is called on the dispatcher and must not block.
	Limit func(group string) (n int, again time.Time)

	Lease    time.Duration   // how long one attempt may take; 0 means 5 minutes
	Schedule []time.Duration // waits after errors in a row; after the last the job is parked
	Endless  bool            // it is never parked: the last wait of Schedule repeats
}

// Runner claims due jobs and hands them to their handlers. Register kinds, then Run once.
type Runner struct {
	d     *db.DB
	q     *Queue
	log   *slog.Logger
	node  string
	grace time.Duration
	kinds []*dispatcher
	crons []Cron
}

// NewRunner returns a runner for the queue. Grace is how long work in hand may take when stopping.
func NewRunner(d *db.DB, q *Queue, log *slog.Logger, grace time.Duration) *Runner {
	r := &Runner{d: d, q: q, log: log, node: id.New(), grace: grace}
	d.OnHint(hintTopic, func(p string) {
		kind, lane, at, ok := parseHint(p)
		if !ok {
			return
		}
		for _, k := range r.kinds {
			if k.Name == kind {
				k.hint(lane, at)
			}
		}
	})
	return r
}

// Handle registers a kind. It is called before Run.
func (r *Runner) Handle(k Kind) {
	if k.Lease == 0 {
		k.Lease = 5 * time.Minute
	}
	if k.Workers == 0 {
		k.Workers = 4
	}
	if k.PerLane == 0 || k.PerLane > k.Workers {
		k.PerLane = k.Workers
	}
	itself := func(lane string) string { return lane }
	if k.Group == nil {
		k.Group = itself
	}
	exact := k.Owner == nil
	if exact {
		k.Owner = itself
	}
	d := newDispatcher(r, k)
	d.exact = exact
	r.kinds = append(r.kinds, d)
}

// Run works until ctx ends. Then it claims no more, gives what is in hand its grace, and returns the leases of what is
// not done by then.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { r.watch(ctx) })
	for _, k := range r.kinds {
		wg.Go(func() { k.run(ctx) })
	}
	wg.Wait()
	return r.end()
}

// begin enters this node, releases what the dead hold when nobody else can, and sees to it that each cron has its job.
func (r *Runner) begin(ctx context.Context) error {
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		if r.d.Alone() {
			tx.Queue(ctx, `UPDATE jobs SET run_at = $1, holder = '' WHERE holder <> ''`, tx.Now().Add(-slack).UnixMicro())
			tx.Queue(ctx, `DELETE FROM nodes`)
		}
		tx.Queue(ctx, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, $2)`, r.node, tx.Now().UnixMicro())
		r.enterCrons(ctx, tx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("start the job runner: %w", err)
	}
	return nil
}

// end returns the leases of unfinished jobs and leaves.
func (r *Runner) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE jobs SET run_at = $2, holder = '' WHERE holder = $1`, r.node, tx.Now().Add(-slack).UnixMicro())
		tx.Queue(ctx, `DELETE FROM nodes WHERE id = $1`, r.node)
		return nil
	})
	if err != nil {
		return fmt.Errorf("return the leases of unfinished jobs: %w", err)
	}
	return nil
}

// work runs one handler and sees to what it reports.
func (r *Runner) work(ctx context.Context, k *dispatcher, j Job) {
	ctx, cancel := context.WithTimeout(ctx, k.Lease-k.Lease/10)
	defer cancel()
	err := handle(ctx, k.Handle, j)
	switch {
	case err == nil:
		return
	case errors.Is(err, ErrLost):
		r.log.Warn("a job's lease was lost; another attempt does its work", "kind", j.Kind, "job", j.ID, "error", err)
		return
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errStopping):
		return // end returns the lease.
	}
	if err := r.retry(k, j, err); err != nil && !errors.Is(err, ErrLost) {
		r.log.Error("could not record a failed job; its lease will bring it back", "kind", j.Kind, "job", j.ID, "error", err)
	}
}

func handle(ctx context.Context, h func(context.Context, Job) error, j Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return h(ctx, j)
}

// retry reschedules a job whose handler failed, or parks it after the last of its waits.
func (r *Runner) retry(k *dispatcher, j Job, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	failures := j.Failures + 1
	park := !k.Endless && failures > len(k.Schedule)
	if park {
		r.log.Error("a job failed for the last time and is parked; see `postrider jobs`", "kind", j.Kind, "job", j.ID,
			"team", j.TeamID, "failures", failures, "error", cause)
	} else {
		r.log.Warn("a job failed and will be tried again", "kind", j.Kind, "job", j.ID, "failures", failures, "error", cause)
	}
	return r.d.Update(ctx, func(tx *db.Tx) error {
		if park {
			return r.q.Park(ctx, tx, j, cause.Error())
		}
		wait := k.Schedule[min(failures, len(k.Schedule))-1]
		r.q.fail(ctx, tx, j, tx.Now().Add(Jitter(wait)), cause.Error())
		return nil
	})
}

// Jitter spreads a wait over ±20%, so that what failed together does not come back together.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}

const (
	beatEvery = 2 * time.Second
	deadAfter = 12 * time.Second
)

// watch keeps this node's heart beating and returns the leases of nodes whose heart stands still. Times are this
// node's own monotonic ones: clocks of different nodes are never compared.
func (r *Runner) watch(ctx context.Context) {
	if r.d.Alone() {
		return
	}
	type seen struct {
		beat int64
		at   time.Time
	}
	known := map[string]seen{}
	tick := time.NewTicker(beatEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		beats, err := r.beat(ctx)
		if err != nil {
			if ctx.Err() == nil {
				r.log.Warn("could not write this node's heartbeat", "error", err)
			}
			continue
		}
		for node, b := range beats {
			if s, ok := known[node]; !ok || s.beat != b {
				known[node] = seen{b, time.Now()}
			} else if node != r.node && time.Since(s.at) > deadAfter {
				r.bury(ctx, node)
				delete(known, node)
			}
		}
	}
}

func (r *Runner) beat(ctx context.Context) (map[string]int64, error) {
	beats := map[string]int64{}
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE nodes SET beat = beat + 1 WHERE id = $1`, r.node)
		if err == nil && n == 0 { // taken for dead while this process was suspended
			tx.Queue(ctx, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, 0, $2)`, r.node, tx.Now().UnixMicro())
		}
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `SELECT id, beat FROM nodes`)
		if err != nil {
			return err
		}
		defer rows.Close()
		clear(beats)
		for rows.Next() {
			var node string
			var b int64
			if err := rows.Scan(&node, &b); err != nil {
				return err
			}
			beats[node] = b
		}
		return rows.Err()
	})
	return beats, err
}

// bury returns the leases of a dead node. Should it live after all, its fences keep it from recording anything twice.
func (r *Runner) bury(ctx context.Context, node string) {
	var n int64
	err := r.d.Update(ctx, func(tx *db.Tx) (err error) {
		tx.Queue(ctx, `DELETE FROM nodes WHERE id = $1`, node)
		n, err = tx.Exec(ctx, `UPDATE jobs SET run_at = $2, holder = '' WHERE holder = $1`, node, tx.Now().Add(-slack).UnixMicro())
		return err
	})
	if err != nil {
		r.log.Warn("could not take over a dead node's jobs", "node", node, "error", err)
		return
	}
	r.log.Warn("a node died; its jobs are due again", "node", node, "jobs", n)
	for _, k := range r.kinds {
		k.rescan()
	}
}
