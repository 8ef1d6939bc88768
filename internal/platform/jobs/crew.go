package jobs

import "sync"

// crew runs the handlers of jobs in goroutines, and keeps the goroutines for later jobs. Each new goroutine would
// first have to grow its stack several times.
type crew struct {
	wg   sync.WaitGroup
	next chan func()
}

func newCrew() *crew { return &crew{next: make(chan func())} }

// run runs f in a goroutine that waits for work, or else in a new one.
func (c *crew) run(f func()) {
	select {
	case c.next <- f:
	default:
		c.wg.Go(func() {
			f()
			for f := range c.next {
				f()
			}
		})
	}
}

// end waits until all functions have returned. Call end once, after the last call of run.
func (c *crew) end() {
	close(c.next)
	c.wg.Wait()
}
