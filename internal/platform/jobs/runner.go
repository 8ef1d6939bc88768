package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Kind describes how a node runs the jobs of one kind.
type Kind struct {
	Name string

	// Handle runs a job. A handler ends its job with Finish, Retry, Wait or Park in the transaction that records the
	// effect. If Handle returns an error or panics, the job is retried according to Schedule. Handle's context ends
	// when the lease ends, when another node takes over the job, or when the grace period after a stop ends.
	Handle func(ctx context.Context, j Job) error

	Workers int // maximum number of running jobs on this node; 0 means 4
	PerLane int // group limit; several owners together may run twice as many jobs; 0 means Workers

	// Group returns the group of a lane. The lanes in a group share the limit PerLane. If Group is nil, each lane is a
	// separate group.
	Group func(lane string) string

	// Owner returns the owner of a lane, usually its team. Owners are served in turn and share Workers as described in
	// package fairshare, so a single owner gets at most 7/8 of Workers. In a group, all owners together may run up to
	// twice the group's limit. Each owner may use half of the slots that the other owners leave free. If Owner is nil,
	// each lane is a separate owner, and PerLane is never exceeded.
	Owner func(lane string) string

	// Bulk, if set, reports whether a lane's jobs yield to other jobs with the same group and owner. Bulk jobs always
	// get some capacity and always leave some capacity free (see [reserve]).
	Bulk func(lane string) bool

	// Limit, if set, returns how many jobs in a group may run now, at most PerLane. If the limit is temporary, the
	// second result is the time at which the dispatcher calls Limit again. Limit must not block.
	Limit func(group string) (n int, again time.Time)

	// Share, if set, returns how many jobs in a group an owner may run now, and how likely these jobs are to end soon.
	// The dispatcher calls Share often, so Share must not block.
	Share func(group, owner string) Share

	Lease    time.Duration   // maximum duration of an attempt, by this node's monotonic clock; 0 means 5 minutes
	Schedule []time.Duration // delays after consecutive errors; an error after the last delay parks the job
	Endless  bool            // jobs are never parked: the last delay of Schedule repeats
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

	// Observe, if set, is called after each run of a job with its result: "done", "failed", "parked" or "lost". Set
	// Observe before Run.
	Observe func(kind, result string)

	pulse    pulse
	scans    time.Duration   // time between regular scans
	stopping <-chan struct{} // closed when Run must end
	life     atomic.Pointer[life]
	beats    int64 // number of heartbeats so far; only Run's goroutines change it
	onNodes  func(n int)
	news     chan struct{} // receives a value when a node has started or stopped
	running  atomic.Bool   // whether all kinds are registered; the first scan finds the work from earlier hints
	paused   atomic.Bool   // whether no jobs are claimed (see Pause)
	held     atomic.Bool   // whether claimed jobs may not begin irreversible actions
	active   atomic.Int64  // number of claims in progress and of running jobs

	mu   sync.Mutex
	owed []Job // jobs for which giveBack failed and must be repeated
}

// NewRunner returns a runner for the queue. The grace parameter is how long running jobs may continue when the runner
// stops.
func NewRunner(d *db.DB, q *Queue, log *slog.Logger, grace time.Duration) *Runner {
	r := &Runner{d: d, q: q, log: log, node: id.New(), grace: grace, pulse: normalPulse, onNodes: func(int) {},
		news: make(chan struct{}, 1), scans: scanShared}
	if d.Alone() {
		r.scans = scanAlone
	}
	d.OnHint(nodesTopic, func(node string) {
		if node == r.node {
			return
		}
		select {
		case r.news <- struct{}{}:
		default:
		}
	})
	d.OnListening(r.rescan)
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

// Handle registers a kind. Call Handle before Run.
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

// LimitRaised tells the dispatcher that a group's Limit has increased. Without a call to LimitRaised, waiting lanes in
// the group continue only when one of the group's jobs ends.
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

// Run claims and handles jobs until ctx ends. After ctx ends, Run claims no more jobs, and handlers must not begin
// irreversible actions (see [Job.Sure]). Running jobs may continue for the grace period; jobs that have not ended after
// this period become due again. Run returns an error if the database fails when Run starts or ends.
func (r *Runner) Run(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		if ctx.Err() != nil { // the runner was stopped before it started
			return nil
		}
		return err
	}
	r.running.Store(true)
	// Heartbeats continue until the last job is done.
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

// work runs a job's handler and processes the handler's error. Unless the job was ended or rescheduled, work makes it
// due again.
func (r *Runner) work(ctx context.Context, k *dispatcher, j Job) {
	ctx, cancel := context.WithTimeout(ctx, k.Lease)
	defer cancel()
	ctx, lose := context.WithCancelCause(ctx)
	defer context.AfterFunc(j.life.ctx, func() { lose(context.Cause(j.life.ctx)) })()
	k.active.Add(1)
	err := handle(ctx, k.Handle, j)
	k.active.Add(-1)
	switch {
	case err == nil:
		r.observe(j.Kind, "done")
		return
	case errors.Is(err, ErrLost):
		r.observe(j.Kind, "lost")
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

func (r *Runner) observe(kind, result string) {
	if r.Observe != nil {
		r.Observe(kind, result)
	}
}

// Running returns the number of running jobs of each kind on this node.
func (r *Runner) Running() map[string]int64 {
	all := make(map[string]int64, len(r.kinds))
	for _, k := range r.kinds {
		all[k.Name] = k.active.Load()
	}
	return all
}

// panicked is the error for a handler that panicked. Error does not include the stack trace, because the error text is
// stored with the job.
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

const (
	// outageWait is the wait between attempts during an outage. With its variation, a job goes on within 30 seconds of the
	// end of the outage.
	outageWait = 24 * time.Second
	// outageMark is the beginning of the last error of a job that waits for the end of an outage. The time at which the
	// outage began follows.
	outageMark = "outage since "
	// outageMax is how long a job waits for the end of an outage. A failure that lasts longer
	// may concern only this job, such as a file that cannot be read, or come from a wrong setting.
	outageMax = 24 * time.Hour
	// outageTries is the maximum number of attempts during outages of the database. A statement that always takes too
	// long is not an outage.
	outageTries = 100
)

// waitsForUs reports whether an attempt failed because the database or another part of this installation was not
// available. Such attempts are repeated every outageWait and count neither as failures nor as tries, until the outage
// has lasted for outageMax.
func waitsForUs(j Job, cause error, now time.Time) bool {
	if j.Outlasted(now) {
		return false
	}
	if errors.Is(cause, db.ErrUnavailable) || errors.Is(cause, db.ErrUnknown) {
		return j.Attempt <= outageTries
	}
	return fault.IsOutage(cause)
}

// OutageSince returns the time since which the job waits for the end of an outage. It returns false if the last attempt
// failed for another reason.
func (j *Job) OutageSince() (since time.Time, ok bool) {
	rest, ok := strings.CutPrefix(j.LastError, outageMark)
	text, _, _ := strings.Cut(rest, ": ")
	since, err := time.Parse(time.RFC3339, text)
	return since, ok && err == nil
}

// Outlasted reports whether the job has waited for the end of an outage for over a day. From then on, handlers must
// treat the outage like any other error.
func (j *Job) Outlasted(now time.Time) bool {
	since, ok := j.OutageSince()
	return ok && now.Sub(since) > outageMax
}

// retry reschedules a job whose handler failed, or parks the job after the last delay of its schedule.
func (r *Runner) retry(k *dispatcher, j Job, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	failures := j.Failures + 1
	if p, ok := errors.AsType[*panicked](cause); ok {
		r.log.Error("a job's handler panicked", "kind", j.Kind, "panic", p.value, "stack", string(p.stack))
	}
	now, why := r.d.Now(), cause.Error()
	outage := waitsForUs(j, cause, now)
	since, waited := j.OutageSince()
	if outage || waited && fault.IsOutage(cause) { // a failure after outageMax does not begin another outage
		if !waited {
			since = now
		}
		why = outageMark + since.UTC().Format(time.RFC3339) + ": " + why
	}
	park := !k.Endless && !outage && failures > len(k.Schedule)
	if park {
		r.observe(j.Kind, "parked")
		r.log.Error("a job failed for the last time and is parked; see `postrider jobs`", "kind", j.Kind, "job", j.ID,
			"team", j.TeamID, "failures", failures, "error", cause)
	} else {
		r.observe(j.Kind, "failed")
		r.log.Warn("a job failed and will be tried again", "kind", j.Kind, "job", j.ID, "failures", failures, "error", cause)
	}
	return r.d.Update(ctx, func(tx *db.Tx) error {
		if park {
			r.q.Park(ctx, tx, j, why)
			return nil
		}
		if outage {
			wait := outageWait
			if len(k.Schedule) > 0 && !waited {
				wait = min(wait, k.Schedule[0])
			}
			r.q.Wait(ctx, tx, j, tx.Now().Add(Jitter(wait)), why)
			return nil
		}
		wait := k.Schedule[min(failures, len(k.Schedule))-1]
		r.q.fail(ctx, tx, j, tx.Now().Add(Jitter(wait)), why)
		return nil
	})
}

// Jitter varies a delay by up to ±20%, so that jobs that failed at the same time are not retried at the same time.
func Jitter(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (0.8 + 0.4*rand.Float64()))
}
