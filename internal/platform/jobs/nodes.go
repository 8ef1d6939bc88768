package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// ErrStopping means that the node is stopping and starts no new work. If a handler returns ErrStopping, the job becomes
// due again for other nodes.
var ErrStopping = errors.New("the node is stopping")

// ErrUnsure means that this node lost contact with the database for so long that another node may have taken over its
// jobs, or that the runner is paused. If a handler returns ErrUnsure, the job becomes due again.
var ErrUnsure = errors.New("the database could not be reached, so another node may have taken the job")

// errDeclaredDead is the error for a claim by a node that has no row in the nodes table. If such a node claimed a job
// and died, no other node would make the job due.
var errDeclaredDead = fmt.Errorf("%w, which took this one for dead", ErrLost)

const (
	beatLimit    = 5 * time.Second  // time limit for one heartbeat
	releaseLimit = time.Minute      // time limit for making a dead node's jobs due
	sureWait     = 30 * time.Second // maximum time that Sure waits for a heartbeat
)

// pulse contains the intervals and time limits for heartbeats.
type pulse struct {
	every time.Duration // time between heartbeats
	sure  time.Duration // time after a heartbeat's start during which no other node can declare this node dead
	dead  time.Duration // time without heartbeats after which another node declares a node dead
}

var normalPulse = pulse{every: 2 * time.Second, sure: 12 * time.Second, dead: 20 * time.Second}

// life is the period from a node's registration until other nodes declare the node dead. A process that is suspended or
// loses contact with the database may have several successive lives.
type life struct {
	alone    bool
	sure     time.Duration
	stopping <-chan struct{}
	held     *atomic.Bool    // see Runner.Pause
	ctx      context.Context // canceled with the cause ErrLost
	end      context.CancelCauseFunc

	mu     sync.Mutex
	beatAt time.Time     // start time of the last successful heartbeat
	beat   chan struct{} // channel that the next heartbeat closes
}

func newLife(r *Runner, at time.Time) *life {
	ctx, end := context.WithCancelCause(context.Background())
	return &life{alone: r.d.Alone(), sure: r.pulse.sure, stopping: r.stopping, held: &r.held, ctx: ctx, end: end, beatAt: at,
		beat: make(chan struct{})}
}

// lives records a successful heartbeat that began at the given time.
func (l *life) lives(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beatAt = at
	close(l.beat)
	l.beat = make(chan struct{})
}

// Sure returns nil if it is certain that the job still belongs to this worker. Call Sure immediately before an
// irreversible action, such as sending the end of a message. Sure returns ErrStopping if the node is stopping, and
// ErrLost if another node has the job. Sure returns ErrUnsure if it has waited half a minute for a heartbeat. Sure
// does not query the database, because other nodes cannot take over this node's jobs as long as its heartbeats succeed.
func (j Job) Sure(ctx context.Context) error {
	l := j.life
	if l == nil { // no runner has claimed the job
		return nil
	}
	var patience <-chan time.Time
	for {
		l.mu.Lock()
		at, next := l.beatAt, l.beat
		l.mu.Unlock()
		select {
		case <-l.stopping:
			return ErrStopping
		case <-l.ctx.Done():
			return context.Cause(l.ctx)
		default:
		}
		if l.held.Load() {
			return ErrUnsure
		}
		if l.alone || time.Since(at) < l.sure {
			return nil
		}
		if patience == nil {
			patience = time.After(sureWait)
		}
		select {
		case <-next:
		case <-l.stopping:
		case <-l.ctx.Done():
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-patience:
			return ErrUnsure
		}
	}
}

// begin registers this node and inserts the cron jobs. On SQLite, begin also makes dead nodes' jobs due.
func (r *Runner) begin(ctx context.Context) error {
	r.stopping = ctx.Done()
	r.life.Store(newLife(r, time.Now()))
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		if r.d.Alone() {
			tx.Queue(ctx, releaseAllJobs, due(tx).UnixMicro(), tx.Now().UnixMicro())
			tx.Queue(ctx, deleteNodes)
		}
		r.register(ctx, tx)
		r.insertCrons(ctx, tx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("start the job runner: %w", err)
	}
	return nil
}

func (r *Runner) register(ctx context.Context, tx *db.Tx) {
	tx.Queue(ctx, insertNode, db.ID(r.node), r.beats, tx.Now().UnixMicro())
	r.announce(tx)
}

const nodesTopic = "nodes"

// announce makes the other nodes read the list of nodes immediately.
func (r *Runner) announce(tx *db.Tx) {
	tx.AfterCommit(func() { r.d.Hint(nodesTopic, r.node) })
}

// Node returns the id of this node in the database.
func (r *Runner) Node() string { return r.node }

// OnNodes sets a function f that the runner calls after each successful heartbeat with the number n of registered
// nodes, including this node. If other nodes declared this node dead and took over its jobs, n is 0. The runner calls f
// again once this node has registered again. The function f must not block. Call OnNodes before Run. On SQLite, where
// only one node can run, f is never called (see [db.DB.Alone]).
func (r *Runner) OnNodes(f func(n int)) { r.onNodes = f }

// end makes this node's unfinished jobs due again and removes the node's row.
func (r *Runner) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		_, err := r.releaseJobs(ctx, tx, r.node)
		tx.Queue(ctx, deleteNode, db.ID(r.node))
		r.announce(tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("give back unfinished jobs: %w", err)
	}
	return nil
}

// releaseJobs makes a node's jobs due and returns their number.
func (r *Runner) releaseJobs(ctx context.Context, tx *db.Tx, node string) (n int, err error) {
	rows, err := tx.Query(ctx, releaseNodeJobs, db.ID(node), due(tx).UnixMicro(), tx.Now().UnixMicro())
	n, err = r.q.wakeLanes(tx, rows, err, due(tx))
	if err != nil {
		return 0, fmt.Errorf("make the jobs of node %s due: %w", node, err)
	}
	return n, nil
}

// due returns the due time of a job that is due immediately.
func due(tx *db.Tx) time.Time { return tx.Now().Add(-slack) }

// giveBack makes a job that this node holds due immediately. No worker may be running the job. If the update fails, the
// tend method repeats giveBack.
func (r *Runner) giveBack(ctx context.Context, j Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatLimit)
	defer cancel()
	err := r.d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
		tx.Queue(ctx, giveBackJob, db.ID(j.ID), j.Attempt, db.ID(r.node), due(tx).UnixMicro(), tx.Now().UnixMicro())
		r.q.wake(tx, j.Kind, j.Lane, due(tx))
		return nil
	})
	if err != nil {
		r.mu.Lock()
		r.owed = append(r.owed, j)
		r.mu.Unlock()
	}
}

// giveBackOwed repeats giveBack for the jobs in owed, for which an earlier call failed. If giveBack fails again, the
// remaining jobs stay in owed.
func (r *Runner) giveBackOwed(ctx context.Context) {
	r.mu.Lock()
	all := r.owed
	r.owed = nil
	r.mu.Unlock()
	for i, j := range all {
		r.giveBack(ctx, j)
		r.mu.Lock()
		failed := len(r.owed) > 0
		if failed {
			r.owed = append(r.owed, all[i+1:]...)
		}
		r.mu.Unlock()
		if failed {
			return
		}
	}
}

// tend runs until ctx ends. At regular intervals, tend repeats failed calls to giveBack and checks whether the
// database's clock stepped back. At the start, tend assumes such a step, because the clock may have stepped back while
// no node ran.
func (r *Runner) tend(ctx context.Context) {
	c := stepper{wall: r.d.Now(), at: time.Now()}
	tick := time.NewTicker(r.pulse.every)
	defer tick.Stop()
	for mended := false; ; {
		if !mended {
			mended = r.mendTimes(ctx, false)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.giveBackOwed(ctx)
		r.watchClock(ctx, &c)
	}
}

// watch writes this node's heartbeats and takes over dead nodes' jobs until ctx ends. Heartbeats use a separate
// database connection, so that they do not wait for other work. All times are measured by this node's monotonic clock,
// because clocks of different nodes are never compared.
func (r *Runner) watch(ctx context.Context) {
	w := watcher{r: r, pulse: r.pulse, known: map[string]seen{}}
	defer w.deaths.Wait()
	tick := time.NewTicker(r.pulse.every)
	defer tick.Stop()
	for {
		w.beat(ctx)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-r.news:
		}
	}
}

type watcher struct {
	r      *Runner
	pulse  pulse
	known  map[string]seen // latest heartbeat by node id
	last   time.Time       // time of the last successful heartbeat
	deaths sync.WaitGroup
}

// seen is the latest heartbeat from a node, and the time at which this heartbeat was first read.
type seen struct {
	beat int64
	at   time.Time
}

// beat writes one heartbeat, reads the other nodes' heartbeats, and declares dead every node that no longer writes
// heartbeats.
func (w *watcher) beat(ctx context.Context) {
	r, began := w.r, time.Now()
	limited, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	beats, dead, err := r.beat(limited)
	if dead {
		r.log.Warn("other nodes took this one for dead; what it had in hand is theirs")
		at := began
		if err != nil {
			at = time.Time{} // the next heartbeat determines whether the node is registered again
		}
		r.life.Swap(newLife(r, at)).end(ErrLost)
		r.onNodes(0)
	}
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("could not write this node's heartbeat", "error", err)
		}
		return
	}
	r.life.Load().lives(began)
	r.onNodes(len(beats))
	for _, node := range w.judge(beats, time.Now()) {
		w.deaths.Go(func() { r.declareDead(ctx, node, beats[node]) })
	}
}

// judge records the heartbeats of all nodes and returns the nodes that are dead. If this node lost contact with the
// database for longer than pulse.sure, judge discards all earlier heartbeats and the full waiting time starts again.
func (w *watcher) judge(beats map[string]int64, now time.Time) (dead []string) {
	if now.Sub(w.last) > w.pulse.sure {
		clear(w.known)
	}
	w.last = now
	for node, b := range beats {
		switch s, ok := w.known[node]; {
		case !ok || s.beat != b:
			w.known[node] = seen{b, now}
		case node != w.r.node && now.Sub(s.at) > w.pulse.dead:
			dead = append(dead, node)
			delete(w.known, node)
		}
	}
	return dead
}

// beat writes one heartbeat on a separate connection and returns the heartbeats of all nodes. If another node had
// declared this node dead and deleted its row, beat returns dead == true. The value of dead is valid even if beat also
// returns an error; in that case the node may not yet be registered again.
func (r *Runner) beat(ctx context.Context) (beats map[string]int64, dead bool, err error) {
	r.beats++
	err = r.d.UpdateApart(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, updateBeat, db.ID(r.node), r.beats)
		if err != nil {
			return err
		}
		if n == 0 {
			dead = true
			r.register(ctx, tx)
		}
		rows, err := tx.Query(ctx, selectBeats)
		beats = map[string]int64{}
		_, err = db.Collect(rows, err, func(row db.Row) (struct{}, error) {
			var node string
			var b int64
			err := row.Scan((*db.ID)(&node), &b)
			beats[node] = b
			return struct{}{}, err
		})
		return err
	})
	return beats, dead, err
}

// declareDead deletes a node's row and makes its jobs due, unless the node has written another heartbeat. A node that
// is still alive discovers at its next heartbeat that its row is missing. Until that heartbeat, calls to Sure on the
// node do not succeed.
func (r *Runner) declareDead(ctx context.Context, node string, beat int64) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	var n int
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		deleted, err := tx.Exec(ctx, deleteDeadNode, db.ID(node), beat)
		if err != nil || deleted == 0 {
			return err
		}
		n, err = r.releaseJobs(ctx, tx, node)
		return err
	})
	if err != nil {
		r.log.Warn("could not take over a dead node's jobs; trying again", "node", node, "error", err)
		r.rescan() // the transaction may have been committed
		return
	}
	r.log.Warn("a node died; its jobs are due again", "node", node, "jobs", n)
}

// rescan makes all dispatchers scan their lanes immediately. Before the dispatchers run, rescan does nothing, because
// each dispatcher begins with a scan.
func (r *Runner) rescan() {
	if !r.running.Load() {
		return
	}
	for _, k := range r.kinds {
		k.rescan()
	}
}

const stepMin = 5 * time.Second // smaller clock differences are not treated as a step

// stepper is a reading of the database's clock together with this node's monotonic time at that moment.
type stepper struct{ wall, at time.Time }

// watchClock calls mendTimes if the database's clock has stepped back.
func (r *Runner) watchClock(ctx context.Context, c *stepper) {
	now := stepper{r.d.Now(), time.Now()}
	step := now.wall.Sub(c.wall) - now.at.Sub(c.at)
	if step > -stepMin {
		*c = now
		return
	}
	r.log.Warn("the clock stepped back; jobs wait as long as they would have", "step", -step.Round(time.Second))
	if r.mendTimes(ctx, true) {
		*c = now
	}
}

// mendTimes restarts a job's wait if the start of the wait is in the future because the clock stepped back. Times that
// a caller chose are not changed. If the clock certainly stepped, or if a wait was restarted, mendTimes makes the
// dispatchers compute all waits again. If the database fails, mendTimes logs the error and returns false.
func (r *Runner) mendTimes(ctx context.Context, stepped bool) bool {
	n, err := r.restartWaits(ctx)
	if err != nil {
		if ctx.Err() == nil {
			r.log.Warn("could not mend the times of jobs after the clock stepped back; trying again", "error", err)
		}
		return false
	}
	if stepped || n > 0 {
		for _, k := range r.kinds {
			k.restart()
		}
	}
	return true
}

// restartWaits restarts the waits that begin in the future, in steps of some lanes, and returns their number. A step
// writes only if one of its lanes has such a wait.
func (r *Runner) restartWaits(ctx context.Context) (n int64, err error) {
	kinds, err := r.kindsInQueue(ctx)
	if err != nil {
		return 0, err
	}
	for _, kind := range kinds {
		for last, more := "", true; more; {
			var lanes []string
			if lanes, last, more, err = r.lanesToMend(ctx, kind, last); err != nil {
				return n, err
			}
			if len(lanes) == 0 {
				continue
			}
			err := r.d.Update(ctx, func(tx *db.Tx) error {
				now := tx.Now()
				mended, err := tx.Exec(ctx, restartWaits, now.UnixMicro(), now.Add(stepMin).UnixMicro(), kind, lanes,
					now.Add(stepMin-slack).UnixMicro(), int64(inHand))
				n += mended
				return err
			})
			if err != nil {
				return n, err
			}
		}
	}
	return n, nil
}
