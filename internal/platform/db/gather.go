package db

import (
	"runtime"
	"slices"
	"sync"
	"time"
)

// gatherYields is how often other goroutines may add their work before a group begins, because each transaction and
// each statement has a fixed cost.
const gatherYields = 3

// gather collects what waits at the same time, such as updates that may share a transaction, and works on it in groups.
// Work that arrives while a group runs is part of the next group.
type gather[T any] struct {
	most   int           // maximum size of a group
	atOnce int           // maximum number of groups that run at a time
	beside time.Duration // a group begins beside another one only if its members have waited for so long

	mu      sync.Mutex
	waiting []*T
	running int       // calls of run
	began   time.Time // when the last group began, zero if it has ended
}

// add lets one wait for its group. The work function is called with each group, in another goroutine.
func (g *gather[T]) add(one *T, work func(group []*T)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiting = append(g.waiting, one)
	if g.running == 0 || time.Since(g.began) >= g.beside {
		g.start(work)
	}
}

// leave ends the wait of one. If its group has begun, leave returns false.
func (g *gather[T]) leave(one *T) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.waiting, one)
	if i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	return i >= 0
}

// start begins to work on what waits, unless enough groups run. The caller holds g.mu.
func (g *gather[T]) start(work func([]*T)) {
	if len(g.waiting) > 0 && g.running < g.atOnce {
		g.running++
		go g.run(work)
	}
}

// run works on groups until nothing waits.
func (g *gather[T]) run(work func([]*T)) {
	for {
		for range gatherYields {
			runtime.Gosched() // on an idle node, it returns at once
		}
		group := g.take()
		if group == nil {
			return
		}
		if g.beside == 0 { // add has started all groups that may run
			work(group)
			continue
		}
		// Work that arrives after this time starts a group itself.
		slow := time.AfterFunc(g.beside, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.start(work)
		})
		work(group)
		slow.Stop()
	}
}

// take removes a group from what waits. If nothing waits, take returns nil, and the caller's run has ended.
func (g *gather[T]) take() []*T {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := min(len(g.waiting), g.most)
	if n == 0 {
		g.running--
		g.began = time.Time{} // another group may hang, for which the next one must not wait
		return nil
	}
	group := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.began = time.Now()
	return group
}
