// Package fairshare divides a limited number of slots among owners, so that an owner with many requests cannot take all
// slots.
//
// A slot is a unit of a limited resource: a connection, a worker, a byte of memory. An owner is a user of slots: a
// team, or the network of an unauthenticated client.
//
// # Invariants
//
// An owner that holds no slots may acquire slots as soon as enough slots are free. An owner that holds slots may
// acquire more only if it then holds at most greed times the number of slots that stay free. Network switches use the
// same dynamic thresholds to share their buffers (Choudhury and Hahne, 1998). As a result, a single owner gets
// greed/(greed+1) of the slots, and two busy owners get greed/(2*greed+1) each. Some slots therefore always stay free
// for the next owner. An owner's first request is limited only by the number of free slots. The pool never revokes
// slots.
//
// Waiting owners are served round-robin, one request each. While an owner without slots waits for more slots than are
// free, owners with slots may not acquire more, so that free slots accumulate. While an owner waits in this way, other
// owners without slots may still acquire free slots.
//
// [Turns] is a simpler pool for short work and few slots.
//
// # Failures
//
// A request whose context ends while it waits acquires no slots. Slots that are never released are lost, so callers
// release slots in a defer statement. Releasing more slots than were acquired from a Pool panics.
//
// # Out of scope
//
// A pool has no time limits: it does not revoke slots, even if an owner never releases them.
package fairshare

import (
	"context"
	"slices"
	"sync"
)

// Greed is the greed factor that most pools use. With Greed, an owner may hold up to seven times the number of free
// slots, so a single owner gets 7/8 of all slots.
const Greed = 7

// Pool is a limited number of slots that owners share. A Pool is safe for concurrent use.
type Pool struct {
	capacity, greed int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64
	waiting map[string][]*request // waiting requests, keyed by owner; no list is empty
	turns   []string              // owners with waiting requests, in the order in which they are served
}

// request is an Acquire call that waits for slots.
type request struct {
	n       int64
	granted chan struct{}
}

// New returns a pool with all its slots free. If greed is below 1, New uses 1.
func New(capacity, greed int64) *Pool {
	return &Pool{capacity: capacity, greed: max(greed, 1), free: capacity, held: map[string]int64{},
		waiting: map[string][]*request{}}
}

// Acquire acquires n slots for an owner and waits until they are available. If n is greater than the capacity, Acquire
// acquires the whole capacity. If ctx ends first, Acquire acquires no slots and returns the cancellation cause of ctx.
func (p *Pool) Acquire(ctx context.Context, owner string, n int64) error {
	if p.TryAcquire(owner, n) { // waiting requests need not be checked here, because Release checks them
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
	case <-r.granted: // checked before ctx.Done, because a single select would choose at random
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

// TryAcquire acquires n slots for an owner if they are available immediately, and reports whether it acquired them.
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

// Release returns n of an owner's slots to the pool.
func (p *Pool) Release(owner string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(owner, min(n, p.capacity))
	p.grant()
}

// Available returns how many slots an owner could acquire immediately.
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

// may reports whether the thresholds allow an owner to acquire n more slots.
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

// grant gives slots to waiting requests, round-robin by owner, until no owner may acquire more.
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
		if len(p.waiting[owner]) > 0 { // the owner's next request is served after the other owners
			p.turns = append(slices.Delete(p.turns, i, i+1), owner)
		}
		skipped, tight = 0, p.tight()
	}
}

// remove removes one of an owner's waiting requests.
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
