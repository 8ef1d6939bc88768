package webhooks

import (
	"context"
	"sync"

	"github.com/postrider/postrider/internal/db"
)

// gatherMax is how many outcomes share a commit at most.
const gatherMax = 128

// gather records outcomes that come at the same time in one transaction, where the database does not do so itself: on PostgreSQL
// each commit waits for the disk. There is no timer: what came while the last commit ran goes into the next.
type gather struct {
	d *db.DB

	mu      sync.Mutex
	waiting []*gathered
	busy    bool
}

type gathered struct {
	fn   func(*db.Tx) error
	done chan error
}

// update runs fn as [db.DB.Update] does. One that fails does not take others with it.
func (g *gather) update(ctx context.Context, fn func(*db.Tx) error) error {
	if g.d.Alone() {
		return g.d.Update(ctx, fn)
	}
	p := &gathered{fn, make(chan error, 1)}
	g.mu.Lock()
	g.waiting = append(g.waiting, p)
	lead := !g.busy
	g.busy = true
	g.mu.Unlock()
	if lead {
		go g.lead(context.WithoutCancel(ctx))
	}
	return <-p.done
}

// lead commits what waits until nothing does. Whoever waits for it outlives it.
func (g *gather) lead(ctx context.Context) {
	for {
		g.mu.Lock()
		n := min(len(g.waiting), gatherMax)
		group := g.waiting[:n:n]
		g.waiting = g.waiting[n:]
		g.busy = n > 0
		g.mu.Unlock()
		if n == 0 {
			return
		}
		g.commit(ctx, group)
	}
}

func (g *gather) commit(ctx context.Context, group []*gathered) {
	ctx, cancel := context.WithTimeout(ctx, recordTime)
	defer cancel()
	err := g.d.Update(ctx, func(tx *db.Tx) error {
		for _, p := range group {
			if err := p.fn(tx); err != nil {
				return err
			}
		}
		return nil
	})
	for _, p := range group {
		if err != nil && len(group) > 1 {
			p.done <- g.d.Update(ctx, p.fn) // each for itself: one of them is at fault
			continue
		}
		p.done <- err
	}
}
