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

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/id"
)

// Kind says how jobs of one kind are worked.
type Kind struct {
	Name string

	// Handle does the work. It ends its job with Finish, Retry or Park in the transaction that records the effect. If it
	// returns an error, the job is retried by Schedule. Its context ends with the lease, when another node has the
	// job, or when stopping takes too long.
	Handle func(ctx context.Context, j Job) error

	Workers int // jobs in hand at most on this node
	PerLane int // and of one group of lanes; where it has several owners, up to twice as many. 0 means Workers

	// Group names the group that shares PerLane; nil makes each lane a group.
	Group func(lane string) string

	// Owner names whose work a lane is, usually its team. Owners share Workers as package fair says, so one owner alone
	// gets no more than 7/8 of them, and have turns. Within a group each may have in hand what stays free of twice its
	// limit. nil makes each lane an owner of its own, and PerLane exact.
	Owner func(lane string) string

	// Bulk, when set, says of a lane that its jobs give way to the others: of a group, and of their owner's. There is always
	// some room for it, and some that it leaves free (see [reserve]).
	Bulk func(lane string) bool

	// Limit, when set, says how many jobs of a group may be in hand now, and when to ask again if that is fewer than there
	// could be. It is called on the dispatcher and must not block.
	Limit func(group string) (n int, again time.Time)

	// Share, when set, says how much of a group an owner may have in hand now, and how sure it is to come to an end. It is
	// called on the dispatcher, often, and must not block.
	Share func(group, owner string) Share

	Lease    time.Duration   // how long one attempt may take, by this node's monotonic clock; 0 means 5 minutes
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

	pulse    pulse
	stopping <-chan struct{} // closed when Run is to end
	life     atomic.Pointer[life]
	beats    int64 // of this node, so far; only Run's own goroutines count
	onNodes  func(n int)
	news     chan struct{} // a node came or went

	mu   sync.Mutex
	owed []Job // to be given back
}

// NewRunner returns a runner for the queue. Grace is how long work in hand may take when stopping.
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
	if k.Bulk == nil {
		k.Bulk = func(string) bool { return false }
	}
	d := newDispatcher(r, k)
	d.exact = exact
	r.kinds = append(r.kinds, d)
}

// Grown says that more jobs of a group may be in hand than the kind's Limit said before. Without it, lanes that wait for
// the group go on when one of its jobs ends.
func (r *Runner) Grown(kind, group string) {
	for _, k := range r.kinds {
		if k.Name == kind {
			k.regroup(group)
		}
	}
}

// Run works until ctx ends. Then it claims no more and begins nothing (see [Job.Sure]), gives what is in hand its
// grace, and gives back what is not done by then.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		if ctx.Err() != nil { // stopped before it began
			return nil
		}
		return err
	}
	// The heart beats until the last job is done.
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

// work runs one handler and sees to what it reports. A job that is not ended after that is given back.
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

// panicked is the error of a handler that panicked. Its text, which is kept with the job, is without the stack.
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

// retry reschedules a job whose handler failed, or parks it after the last of its waits.
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

// Jitter spreads a wait over ±20%, so that what failed together does not come back together.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
