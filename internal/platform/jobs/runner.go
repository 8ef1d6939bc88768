package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Kind describes how the jobs of one kind are run.
type Kind struct {
	Name string

	// Handle does the work. It ends its job with Finish, Retry, Wait or Park in the transaction that records the effect.
	// If it returns an error or panics, the job is retried by Schedule. Its context ends with the lease, when another
	// node has the job, or when stopping takes too long.
	Handle func(ctx context.Context, j Job) error

	Workers int // the most jobs in hand on this node; 0 means 4
	PerLane int // the most of one group, or up to twice as many if it has several owners; 0 means Workers

	// Group returns the group of a lane, whose lanes share PerLane; nil makes each lane a group.
	Group func(lane string) string

	// Owner returns the owner of a lane, usually its team. Owners take turns, and share Workers as package fair
	// describes, so that one owner alone gets no more than 7/8 of them. Within a group each may have in hand as many as
	// stay free of twice the group's limit. nil makes each lane its own owner, and PerLane exact.
	Owner func(lane string) string

	// Bulk, when set, reports whether the jobs of a lane yield to other jobs of their group and of their owner. Bulk
	// always gets some capacity, and leaves some free (see [reserve]).
	Bulk func(lane string) bool

	// Limit, when set, returns how many jobs of a group may be in hand now, PerLane at most, and when to call it again
	// if that number is lower for a time. The dispatcher calls it, and it must not block.
	Limit func(group string) (n int, again time.Time)

	// Share, when set, returns how many jobs of a group an owner may have in hand now, and how likely they are to end
	// soon. The dispatcher calls it often, and it must not block.
	Share func(group, owner string) Share

	Lease    time.Duration   // how long one attempt may take, by this node's monotonic clock; 0 means 5 minutes
	Schedule []time.Duration // waits after errors in a row; an error after the last parks the job
	Endless  bool            // jobs are never parked: the last wait of Schedule repeats
}

// Runner claims due jobs and calls their handlers. Register kinds, then call Run once.
type Runner struct {
	d     *db.DB
	q     *Queue
	log   *slog.Logger
	node  string
	grace time.Duration
	kinds []*dispatcher
	crons []Cron

	pulse    pulse
	stopping <-chan struct{} // closed when Run must end
	life     atomic.Pointer[life]
	beats    int64 // this node's beats so far; only Run's goroutines change it
	onNodes  func(n int)
	news     chan struct{} // a node came or went
	running  atomic.Bool   // kinds are complete; what hints say before that, the first claims find by themselves

	mu   sync.Mutex
	owed []Job // to be given back, after a try that failed
}

// NewRunner returns a runner for the queue. Grace is how long jobs in hand may go on when the runner stops.
func NewRunner(d *db.DB, q *Queue, log *slog.Logger, grace time.Duration) *Runner {
	r := &Runner{d: d, q: q, log: log, node: id.New(), grace: grace, pulse: normalPulse, onNodes: func(int) {},
		news: make(chan struct{}, 1)}
	d.OnHint(nodesTopic, func(node string) {
		if node == r.node {
			return
		}
		select {
		case r.news <- struct{}{}:
		default:
		}
	})
	d.OnHint(hintTopic, func(p string) {
		kind, lane, at, ok := parseHint(p)
		if !ok || !r.running.Load() {
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

// Handle registers a kind. Call it before Run.
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
	if k.Bulk == nil {
		k.Bulk = func(string) bool { return false }
	}
	d := newDispatcher(r, k)
	d.exact = exact
	r.kinds = append(r.kinds, d)
}

// LimitRaised says that more jobs of a group may be in hand than the kind's Limit said before. Without it, lanes that wait
// for the group go on when one of its jobs ends.
func (r *Runner) LimitRaised(kind, group string) {
	if !r.running.Load() {
		return
	}
	for _, k := range r.kinds {
		if k.Name == kind {
			k.regroup(group)
		}
	}
}

// Run works until ctx ends. Then it claims no more jobs and begins nothing that cannot be undone (see [Job.Sure]),
// lets the jobs in hand go on for the time of grace, and gives back those that are not done by then. It returns an
// error when the database fails at the start or the end.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		if ctx.Err() != nil { // stopped before it began
			return nil
		}
		return err
	}
	r.running.Store(true)
	// Heartbeats go on until the last job is done.
	heart, stop := context.WithCancel(context.WithoutCancel(ctx))
	var watching, wg sync.WaitGroup
	if !r.d.Alone() {
		watching.Go(func() { r.watch(heart) })
	}
	watching.Go(func() { r.tend(heart) })
	for _, k := range r.kinds {
		wg.Go(func() { k.run(ctx) })
	}
	<-ctx.Done()
	wg.Wait()
	stop()
	watching.Wait()
	return r.end()
}

// work runs one handler and deals with its error. Unless the job was ended, or rescheduled, it is given back.
func (r *Runner) work(ctx context.Context, k *dispatcher, j Job) {
	ctx, cancel := context.WithTimeout(ctx, k.Lease)
	defer cancel()
	ctx, lose := context.WithCancelCause(ctx)
	defer context.AfterFunc(j.life.ctx, func() { lose(context.Cause(j.life.ctx)) })()
	err := handle(ctx, k.Handle, j)
	switch {
	case err == nil:
		return
	case errors.Is(err, ErrLost):
		r.log.Warn("a job was lost to another node, which does its work", "kind", j.Kind, "job", j.ID, "error", err)
	case errors.Is(err, ErrStopping), ctx.Err() != nil && errors.Is(context.Cause(ctx), ErrStopping):
	case errors.Is(err, ErrUnsure):
		r.log.Warn("a job waited for the database for too long and is given back", "kind", j.Kind, "job", j.ID, "error", err)
	default:
		if err = r.retry(k, j, err); err == nil {
			return
		}
		r.log.Error("could not record a failed job; it is given back", "kind", j.Kind, "job", j.ID, "error", err)
	}
	r.giveBack(ctx, j)
}

// panicked is the error of a handler that panicked. Its text, which is stored with the job, does not contain the
// stack.
type panicked struct {
	value any
	stack []byte
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func handle(ctx context.Context, h func(context.Context, Job) error, j Job) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicked{p, debug.Stack()}
		}
	}()
	return h(ctx, j)
}

// retry reschedules a job whose handler failed, or parks it after the last wait of its schedule.
func (r *Runner) retry(k *dispatcher, j Job, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	failures := j.Failures + 1
	if p, ok := errors.AsType[*panicked](cause); ok {
		r.log.Error("a job's handler panicked", "kind", j.Kind, "panic", p.value, "stack", string(p.stack))
	}
	park := !k.Endless && failures > len(k.Schedule)
	if park {
		r.log.Error("a job failed for the last time and is parked; see `postrider jobs`", "kind", j.Kind, "job", j.ID,
			"team", j.TeamID, "failures", failures, "error", cause)
	} else {
		r.log.Warn("a job failed and will be tried again", "kind", j.Kind, "job", j.ID, "failures", failures, "error", cause)
	}
	return r.d.Update(ctx, func(tx *db.Tx) error {
		if park {
			r.q.Park(ctx, tx, j, cause.Error())
			return nil
		}
		wait := k.Schedule[min(failures, len(k.Schedule))-1]
		r.q.fail(ctx, tx, j, tx.Now().Add(Jitter(wait)), cause.Error())
		return nil
	})
}

// Jitter varies a wait by up to ±20%, so that jobs that failed together are not retried together.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
