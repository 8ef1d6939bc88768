package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
)

// ErrStopping says that the node is about to end and begins nothing new. A handler that returns it gives its job back.
var ErrStopping = errors.New("the node is stopping")

// ErrUnsure says that the node could not reach the database for so long that another may have its jobs. A handler that
// returns it gives its job back.
var ErrUnsure = errors.New("the database could not be reached, so another node may have taken the job")

// errBuried is for a claim: nobody would give back what a node holds that is not among the nodes, should it die.
var errBuried = fmt.Errorf("%w, which took this one for dead", ErrLost)

const (
	beatLimit = 5 * time.Second  // for one beat
	buryLimit = time.Minute      // for taking over from a dead node, which reads all jobs
	sureWait  = 30 * time.Second // how long Sure waits for a beat
)

// pulse is the times of heartbeats.
type pulse struct {
	every time.Duration // between beats
	sure  time.Duration // from the beginning of a beat a node knows for so long that nobody takes it for dead
	dead  time.Duration // without a beat for so long a node is dead, to one who saw the database all that time
}

var normalPulse = pulse{every: 2 * time.Second, sure: 12 * time.Second, dead: 20 * time.Second}

// life is the time from a node's entry among the nodes until others take it for dead. A process that was suspended, or
// could not reach the database, may have several.
type life struct {
	alone    bool
	sure     time.Duration
	stopping <-chan struct{}
	ctx      context.Context // ends with ErrLost
	end      context.CancelCauseFunc

	mu     sync.Mutex
	beatAt time.Time     // when the last beat that came through began
	beat   chan struct{} // closed by the next one
}

func newLife(r *Runner, at time.Time) *life {
	ctx, end := context.WithCancelCause(context.Background())
	return &life{alone: r.d.Alone(), sure: r.pulse.sure, stopping: r.stopping, ctx: ctx, end: end, beatAt: at, beat: make(chan struct{})}
}

// lives notes a beat that began at a time.
func (l *life) lives(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.beatAt = at
	close(l.beat)
	l.beat = make(chan struct{})
}

// Sure is for the last moment before an effect on the world that cannot be taken back, such as the end of a message: it
// returns nil when the job is certainly this worker's. It is ErrStopping when the node is asked to stop, ErrLost when
// another node has the job, and ErrUnsure when the database could not be asked for half a minute. It costs no look at
// the database: as long as this node's heart beats, no other takes its jobs.
func (j Job) Sure(ctx context.Context) error {
	l := j.life
	if l == nil { // a job that no runner handed out
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

const release = `UPDATE jobs SET run_at = $2, set_at = $3, holder = '' WHERE holder = $1`

// begin enters this node, takes what the dead hold when nobody else can, and sees to it that each cron has its job.
func (r *Runner) begin(ctx context.Context) error {
	r.stopping = ctx.Done()
	r.life.Store(newLife(r, time.Now()))
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		if r.d.Alone() {
			tx.Queue(ctx, `UPDATE jobs SET run_at = $1, set_at = $2, holder = '' WHERE holder <> ''`, due(tx), tx.Now().UnixMicro())
			tx.Queue(ctx, `DELETE FROM nodes`)
		}
		r.enter(ctx, tx)
		r.enterCrons(ctx, tx)
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

func (r *Runner) enter(ctx context.Context, tx *db.Tx) {
	tx.Queue(ctx, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, $2, $3)`, r.node, r.beats, tx.Now().UnixMicro())
	r.announce(tx)
}

const nodesTopic = "nodes"

// announce has the other nodes look at once who is there.
func (r *Runner) announce(tx *db.Tx) {
	tx.AfterCommit(func() { r.d.Hint(nodesTopic, r.node) })
}

// Node is the id of this node among the nodes of the database.
func (r *Runner) Node() string { return r.node }

// OnNodes has f called after each beat that came through with the number of nodes that there are, this one included. They
// are those that have not left and were not found dead. 0 says that others took this node for dead, so that what it had
// is theirs; the number follows when it is a node again. f must not block. OnNodes is called before Run, and f never
// where the node is alone by its database (see [db.DB.Alone]).
func (r *Runner) OnNodes(f func(n int)) { r.onNodes = f }

// end gives back what is not done, and leaves.
func (r *Runner) end() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, release, r.node, due(tx), tx.Now().UnixMicro())
		tx.Queue(ctx, `DELETE FROM nodes WHERE id = $1`, r.node)
		r.announce(tx)
		return nil
	})
	if err != nil {
		return fmt.Errorf("give back unfinished jobs: %w", err)
	}
	return nil
}

// due is the run_at of a job that is due at once.
func due(tx *db.Tx) int64 { return tx.Now().Add(-slack).UnixMicro() }

// giveBack makes a job that this node holds and no worker has due at once. While the database cannot be reached, watch
// tries again.
func (r *Runner) giveBack(ctx context.Context, j Job) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatLimit)
	defer cancel()
	err := r.d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE jobs SET run_at = $4, set_at = $5, holder = '' WHERE id = $1 AND attempt = $2 AND holder = $3`,
			j.ID, j.Attempt, r.node, due(tx), tx.Now().UnixMicro())
		r.q.wake(tx, j.Kind, j.Lane, tx.Now())
		return nil
	})
	if err != nil {
		r.mu.Lock()
		r.owed = append(r.owed, j)
		r.mu.Unlock()
	}
}

// giveBackOwed tries again to give back what could not be, as far as it works.
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

// tend sees to jobs that are owed and to a clock that steps back, until ctx ends.
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

// watch keeps this node's heart beating and takes over from nodes whose heart stands still, until ctx ends. It waits for
// nothing but its own connection to the database. Times are this node's own monotonic ones: clocks of different nodes
// are never compared.
func (r *Runner) watch(ctx context.Context) {
	w := watcher{r: r, pulse: r.pulse, known: map[string]seen{}}
	defer w.burials.Wait()
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
	r       *Runner
	pulse   pulse
	known   map[string]seen // the nodes
	last    time.Time       // when the last beat came through
	burials sync.WaitGroup
}

// seen is when the heart of a node was seen to have beaten.
type seen struct {
	beat int64
	at   time.Time
}

// beat is one beat, and a look at those of others.
func (w *watcher) beat(ctx context.Context) {
	r, began := w.r, time.Now()
	limited, cancel := context.WithTimeout(ctx, beatLimit)
	defer cancel()
	beats, dead, err := r.beat(limited)
	if dead {
		r.log.Warn("other nodes took this one for dead; what it had in hand is theirs")
		at := began
		if err != nil {
			at = time.Time{} // whether it is a node again the next beat shows
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
		w.burials.Go(func() { r.bury(ctx, node, beats[node]) })
	}
}

// judge takes in the beats of all nodes and returns those that are dead. Who could not see the database for a while
// knows nothing of others: it judges them by what it sees from then on.
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

// beat writes one beat, on a connection of its own, and returns the beats of all nodes. dead says that this node was
// not among them, which stays true when an error says that it may not have entered again.
func (r *Runner) beat(ctx context.Context) (beats map[string]int64, dead bool, err error) {
	r.beats++
	err = r.d.UpdateApart(ctx, func(tx *db.Tx) error {
		n, err := tx.Exec(ctx, `UPDATE nodes SET beat = $2 WHERE id = $1`, r.node, r.beats)
		if err != nil {
			return err
		}
		if n == 0 {
			dead = true
			r.enter(ctx, tx)
		}
		rows, err := tx.Query(ctx, `SELECT id, beat FROM nodes`)
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

// bury makes the jobs of a dead node due, unless its heart has beaten since. Should it live after all, it finds out at
// its next beat, and until then it is not sure of its jobs.
func (r *Runner) bury(ctx context.Context, node string, beat int64) {
	ctx, cancel := context.WithTimeout(ctx, buryLimit)
	defer cancel()
	var n int64
	err := r.d.Update(ctx, func(tx *db.Tx) (err error) {
		if n, err = tx.Exec(ctx, `DELETE FROM nodes WHERE id = $1 AND beat = $2`, node, beat); err != nil || n == 0 {
			return err
		}
		n, err = tx.Exec(ctx, release, node, due(tx), tx.Now().UnixMicro())
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

const stepMin = 5 * time.Second // a clock that goes back by less is none that steps

// stepper is the time that the database's clock showed, and when.
type stepper struct{ wall, at time.Time }

// watchClock notices when the clock of the database has stepped back.
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
		k.rescan()
	}
}

// mendTimes gives jobs whose wait began in what is now the future, because the clock has stepped back since, the same
// wait from now on. Times that somebody chose stay.
func (r *Runner) mendTimes(ctx context.Context) error {
	return r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `UPDATE jobs SET run_at = $1 + (run_at - set_at), set_at = $1 WHERE set_at > $2 AND holder = '' AND NOT parked`,
			tx.Now().UnixMicro(), tx.Now().Add(stepMin).UnixMicro())
		return nil
	})
}
