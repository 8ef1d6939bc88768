package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// ErrStopping means that the node is stopping and begins nothing new. A handler that returns ErrStopping gives its job
// back.
var ErrStopping = errors.New("the node is stopping")

// ErrUnsure means that this node lost the database for so long that another node may have its jobs. A handler that
// returns ErrUnsure gives its job back.
var ErrUnsure = errors.New("the database could not be reached, so another node may have taken the job")

// errDeclaredDead is the error of a claim by a node without a row in nodes. If that node died, no other node would make
// the job due.
var errDeclaredDead = fmt.Errorf("%w, which took this one for dead", ErrLost)

const (
	beatLimit    = 5 * time.Second  // for one heartbeat
	releaseLimit = time.Minute      // time limit for making a dead node's jobs due, which reads all jobs
	sureWait     = 30 * time.Second // the longest wait of Sure for a heartbeat
)

// pulse holds the durations of heartbeats.
type pulse struct {
	every time.Duration // between heartbeats
	sure  time.Duration // how long after a heartbeat's start no other node can declare this one dead
	dead  time.Duration // how long without a heartbeat until a node with a working database declares another dead
}

var normalPulse = pulse{every: 2 * time.Second, sure: 12 * time.Second, dead: 20 * time.Second}

// life is the time from a node's registration until other nodes declare it dead. A process that was suspended, or lost
// the database, may have several lives.
type life struct {
	alone    bool
	sure     time.Duration
	stopping <-chan struct{}
	ctx      context.Context // ends with ErrLost
	end      context.CancelCauseFunc

	mu     sync.Mutex
	beatAt time.Time     // time at which the last successful heartbeat began
	beat   chan struct{} // closed by the next heartbeat
}

func newLife(r *Runner, at time.Time) *life {
	ctx, end := context.WithCancelCause(context.Background())
	return &life{alone: r.d.Alone(), sure: r.pulse.sure, stopping: r.stopping, ctx: ctx, end: end, beatAt: at,
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

// Sure returns nil if the job certainly still belongs to this worker. Call it immediately before an effect that cannot
// be undone, such as the end of a message. Sure returns ErrStopping if the node is stopping, and ErrLost if another
// node has the job. It returns ErrUnsure if no heartbeat succeeded for half a minute. Sure does not query the database:
// as long as this node's heartbeats succeed, no other node takes its jobs.
func (j Job) Sure(ctx context.Context) error {
	l := j.life
	if l == nil { // no runner claimed the job
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

// begin registers this node and inserts the jobs of crons. On SQLite it also makes the jobs of dead nodes due.
func (r *Runner) begin(ctx context.Context) error {
	r.stopping = ctx.Done()
	r.life.Store(newLife(r, time.Now()))
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		if r.d.Alone() {
			tx.Queue(ctx, releaseAllJobs, due(tx), tx.Now().UnixMicro())
			tx.Queue(ctx, deleteNodes)
		}
		r.register(ctx, tx)
		r.insertCrons(ctx, tx)
		return nil
	})
	if err == nil {
		err = r.mendTimes(ctx)
	}
	if err != nil {
		return fmt.Errorf("start the job runner: %w", err)
	}
	return nil
}

func (r *Runner) register(ctx context.Context, tx *db.Tx) {
	tx.Queue(ctx, insertNode, r.node, r.beats, tx.Now().UnixMicro())
	r.announce(tx)
}

const nodesTopic = "nodes"

// announce makes the other nodes read the list of nodes immediately.
func (r *Runner) announce(tx *db.Tx) {
	tx.AfterCommit(func() { r.d.Hint(nodesTopic, r.node) })
}

// Node returns the id of this node in the database.
func (r *Runner) Node() string { return r.node }

// OnNodes sets a function that the runner calls after each successful heartbeat. n is the number of registered nodes,
// including this one. n is 0 if other nodes declared this one dead and took over its jobs; f is called again once this
// node has registered again. f must not block. Call OnNodes before Run. On SQLite, where the node is alone, f is never
// called (see [db.DB.Alone]).
func (r *Runner) OnNodes(f func(n int)) { r.onNodes = f }

// end gives back the jobs that are not done, and removes this node.
func (r *Runner) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, releaseNodeJobs, r.node, due(tx), tx.Now().UnixMicro())
		tx.Queue(ctx, deleteNode, r.node)
		r.announce(tx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("give back unfinished jobs: %w", err)
	}
	return nil
}

// due returns the run_at of a job that is due at once.
func due(tx *db.Tx) int64 { return tx.Now().Add(-slack).UnixMicro() }

// giveBack makes a job that this node holds due at once. No worker may have the job. If the update fails, tend repeats
// it.
func (r *Runner) giveBack(ctx context.Context, j Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatLimit)
	defer cancel()
	err := r.d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
		tx.Queue(ctx, giveBackJob, j.ID, j.Attempt, r.node, due(tx), tx.Now().UnixMicro())
		r.q.wake(tx, j.Kind, j.Lane, tx.Now())
		return nil
	})
	if err != nil {
		r.mu.Lock()
		r.owed = append(r.owed, j)
		r.mu.Unlock()
	}
}

// giveBackOwed gives back the jobs for which giveBack failed before. If giveBack fails again, the remaining jobs stay
// owed.
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

// tend gives back owed jobs and watches for a clock that steps back, until ctx ends.
func (r *Runner) tend(ctx context.Context) {
	c := stepper{wall: r.d.Now(), at: time.Now()}
	tick := time.NewTicker(r.pulse.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		r.giveBackOwed(ctx)
		r.watchClock(ctx, &c)
	}
}

// watch writes this node's heartbeats and takes over the jobs of dead nodes until ctx ends. It waits only for its own
// database connection. It uses only this node's monotonic clock: clocks of different nodes are never compared.
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
	known  map[string]seen // the nodes
	last   time.Time       // time at which the last heartbeat succeeded
	deaths sync.WaitGroup
}

// seen is the last heartbeat read of a node and when it was first read.
type seen struct {
	beat int64
	at   time.Time
}

// beat writes one heartbeat, reads those of other nodes, and declares nodes dead that stopped writing theirs.
func (w *watcher) beat(ctx context.Context) {
	r, began := w.r, time.Now()
	limited, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	beats, dead, err := r.beat(limited)
	if dead {
		r.log.Warn("other nodes took this one for dead; what it had in hand is theirs")
		at := began
		if err != nil {
			at = time.Time{} // the next heartbeat shows whether the node is registered again
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

// judge records the heartbeats of all nodes and returns the nodes that are dead. After this node lost the database for
// a while, it forgets earlier heartbeats and waits for the full time again.
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

// beat writes one heartbeat on a separate connection and returns the heartbeats of all nodes. dead means that this
// node's row no longer existed. dead is valid even with an error; in that case the node may not be registered again
// yet.
func (r *Runner) beat(ctx context.Context) (beats map[string]int64, dead bool, err error) {
	r.beats++
	err = r.d.UpdateApart(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, updateBeat, r.node, r.beats)
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
			err := row.Scan(&node, &b)
			beats[node] = b
			return struct{}{}, err
		})
		return err
	})
	return beats, dead, err
}

// declareDead deletes a node and makes its jobs due, unless the node has written a heartbeat since. A node that is still
// alive notices this at its next heartbeat. Until then, Sure returns no success for its jobs.
func (r *Runner) declareDead(ctx context.Context, node string, beat int64) {
	ctx, cancel := context.WithTimeout(ctx, releaseLimit)
	defer cancel()
	var n int64
	err := r.d.Update(ctx, func(tx *db.Tx) (err error) {
		if n, err = tx.Exec(ctx, deleteDeadNode, node, beat); err != nil || n == 0 {
			return err
		}
		n, err = tx.Exec(ctx, releaseNodeJobs, node, due(tx), tx.Now().UnixMicro())
		return err
	})
	if err != nil {
		r.log.Warn("could not take over a dead node's jobs; trying again", "node", node, "error", err)
		return
	}
	r.log.Warn("a node died; its jobs are due again", "node", node, "jobs", n)
	for _, k := range r.kinds {
		k.rescan()
	}
}

const stepMin = 5 * time.Second // smaller differences are not treated as a step

// stepper is a reading of the database's clock, with this node's monotonic time at the reading.
type stepper struct{ wall, at time.Time }

// watchClock notices when the database's clock has stepped back, and then calls mendTimes.
func (r *Runner) watchClock(ctx context.Context, c *stepper) {
	now := stepper{r.d.Now(), time.Now()}
	step := now.wall.Sub(c.wall) - now.at.Sub(c.at)
	if step > -stepMin {
		*c = now
		return
	}
	r.log.Warn("the clock stepped back; jobs wait as long as they would have", "step", -step.Round(time.Second))
	if err := r.mendTimes(ctx); err != nil {
		r.log.Warn("could not mend the times of jobs after the clock stepped back; trying again", "error", err)
		return
	}
	*c = now
	for _, k := range r.kinds {
		k.restart()
	}
}

// mendTimes restarts the waits of jobs whose start is now in the future because the clock stepped back. It keeps times
// that a caller chose.
func (r *Runner) mendTimes(ctx context.Context) error {
	return r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, restartWaits, tx.Now().UnixMicro(), tx.Now().Add(stepMin).UnixMicro())
		return nil
	})
}
