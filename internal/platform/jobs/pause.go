package jobs

import (
	"context"
	"time"
)

// pausePoll is the interval at which Pause looks whether jobs have ended.
const pausePoll = 20 * time.Millisecond

// Pause makes the runner claim no more jobs, and waits until the claimed jobs have ended, or until ctx ends. From then
// on, the remaining jobs may not begin irreversible actions: [Job.Sure] returns ErrUnsure. Pause returns the number of
// the remaining jobs. The pause ends with Resume.
func (r *Runner) Pause(ctx context.Context) (left int) {
	r.paused.Store(true)
	tick := time.NewTicker(pausePoll)
	defer tick.Stop()
	for r.active.Load() > 0 && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	r.held.Store(true)
	return int(r.active.Load())
}

// Resume ends a pause.
func (r *Runner) Resume() {
	r.held.Store(false)
	r.paused.Store(false)
	for _, k := range r.kinds {
		k.wake()
	}
	r.rescan()
}
