// Package fairshare divides a limited number of slots among owners, so that an owner with many requests cannot take
// all.
//
// A slot is a unit of a limited resource: a connection, a worker, a byte of memory. An owner is the user of slots: a
// team, or the network of an unauthenticated client.
//
// # Invariants
//
// An owner without slots may take its first ones as soon as enough are free. An owner with slots may take more only if
// it then holds at most greed times the number of slots that stay free. Network switches share their buffers by the
// same dynamic thresholds (Choudhury and Hahne, 1998). So a single owner gets greed/(greed+1) of the slots, and two
// busy owners get greed/(2*greed+1) each. Some slots always stay free for the next owner. An owner's first request is
// limited only by the number of free slots. The pool never takes slots back.
//
// Waiting owners take turns, one request each. While an owner without slots waits for more than are free, owners with
// slots may take no more, so that free slots accumulate. Other owners without slots may still take some.
//
// [Turns] is a simpler form for short work and few slots.
//
// # When it fails
//
// A request whose context ends while it waits takes nothing. Slots that are never released are lost, so callers release
// them in a defer. Releasing more slots than were taken from a Pool panics.
//
// # What it does not do
//
// A pool has no time limits: it never takes slots back from an owner that holds them forever.
package fairshare

import (
	"context"
	"slices"
	"sync"
)

// Greed is the greed that most pools use. An owner may hold up to seven times the number of free slots. So if there is
// only one owner, it gets 7/8 of all slots.
const Greed = 7

// Pool is a number of slots that owners share. It is safe for concurrent use.
type Pool struct {
	capacity, greed int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64
	waiting map[string][]*request // waiting requests by owner; no list is empty
	turns   []string              // the owners in waiting, the next one first
}

// request is a waiting request.
type request struct {
	n       int64
	granted chan struct{}
}

// New returns a pool with all its slots free. A greed below 1 counts as 1.
func New(capacity, greed int64) *Pool {
	return &Pool{capacity: capacity, greed: max(greed, 1), free: capacity, held: map[string]int64{},
		waiting: map[string][]*request{}}
}

// Acquire takes n slots for an owner and waits until it may. If n is greater than the capacity, Acquire takes the whole
// capacity. If ctx ends first, Acquire takes nothing and returns the cause of ctx.
func (p *Pool) Acquire(ctx context.Context, owner string, n int64) error {
	if p.TryAcquire(owner, n) { // Release checks the waiting requests, so this need not
		return nil
	}
	p.mu.Lock()
	r := &request{min(n, p.capacity), make(chan struct{})}
	if len(p.waiting[owner]) == 0 {
		p.turns = append(p.turns, owner)
	}
	p.waiting[owner] = append(p.waiting[owner], r)
	p.grant()
	p.mu.Unlock()
	select {
	case <-r.granted: // takes precedence over the end of ctx; a single select would choose at random
		return nil
	default:
	}
	select {
	case <-r.granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-r.granted:
		p.give(owner, r.n)
	default:
		p.remove(owner, slices.Index(p.waiting[owner], r))
	}
	p.grant()
	return context.Cause(ctx)
}

// TryAcquire takes n slots for an owner if it may have them now, and reports whether it did.
func (p *Pool) TryAcquire(owner string, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	n = min(n, p.capacity)
	if len(p.waiting[owner]) > 0 || !p.may(owner, n) || p.held[owner] > 0 && p.tight() {
		return false
	}
	p.take(owner, n)
	return true
}

// Release returns n slots of an owner to the pool.
func (p *Pool) Release(owner string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(owner, min(n, p.capacity))
	p.grant()
}

// Available returns how many slots an owner may take now.
func (p *Pool) Available(owner string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held[owner]
	if held > 0 && p.tight() {
		return 0
	}
	available := max((p.greed*p.free-held)/(p.greed+1), 0)
	if held == 0 {
		available = max(available, min(1, p.free))
	}
	return available
}

// Held returns how many slots an owner holds.
func (p *Pool) Held(owner string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[owner]
}

// may reports whether the thresholds let an owner take n more.
func (p *Pool) may(owner string, n int64) bool {
	held := p.held[owner]
	return n <= p.free && (held == 0 || held+n <= p.greed*(p.free-n))
}

// tight reports whether an owner without slots waits for more slots than are free.
func (p *Pool) tight() bool {
	for owner, all := range p.waiting {
		if p.held[owner] == 0 && all[0].n > p.free {
			return true
		}
	}
	return false
}

// grant gives slots to waiting requests, by turns, until no owner may have more.
func (p *Pool) grant() {
	for i, skipped, tight := 0, 0, p.tight(); skipped < len(p.turns); {
		if i >= len(p.turns) {
			i = 0
		}
		owner := p.turns[i]
		r := p.waiting[owner][0]
		if !p.may(owner, r.n) || p.held[owner] > 0 && tight {
			i++
			skipped++
			continue
		}
		p.take(owner, r.n)
		close(r.granted)
		p.remove(owner, 0)
		if len(p.waiting[owner]) > 0 { // the owner's next request comes after the other owners
			p.turns = append(slices.Delete(p.turns, i, i+1), owner)
		}
		skipped, tight = 0, p.tight()
	}
}

// remove removes a request from the waiting ones.
func (p *Pool) remove(owner string, i int) {
	if all := slices.Delete(p.waiting[owner], i, i+1); len(all) > 0 {
		p.waiting[owner] = all
		return
	}
	delete(p.waiting, owner)
	at := slices.Index(p.turns, owner)
	p.turns = slices.Delete(p.turns, at, at+1)
}

func (p *Pool) take(owner string, n int64) {
	p.free -= n
	p.held[owner] += n
}

func (p *Pool) give(owner string, n int64) {
	p.free += n
	if p.held[owner] -= n; p.held[owner] < 0 {
		panic("fair: more places released than were taken")
	}
	if p.held[owner] == 0 {
		delete(p.held, owner)
	}
}
