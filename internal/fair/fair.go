// Package fair shares a number of places among owners, so that none of them can keep the others waiting.
//
// A place is whatever runs out: a connection, a worker, an octet of memory. An owner is whoever uses places: a team,
// or a stranger's network.
//
// # The rule
//
// An owner that holds nothing may take its first places as soon as enough are free. One that holds some may take more
// only while what it holds afterwards is at most the pool's greed times what stays free: the dynamic thresholds that
// switches share their buffers by (Choudhury and Hahne, 1998). So an owner alone gets greed/(greed+1) of the places,
// two greedy owners get greed/(2*greed+1) each, and however many there are, some places stay free for the next
// one. Nothing is taken back from an owner; a newcomer needs no place of another.
//
// Owners that wait have turns, one request each. A newcomer whose request is larger than what is free stops those who
// hold something from taking more, so that the free places add up for it; other newcomers go on.
//
// # Failure
//
// A request that ctx ends takes nothing. Places that are never released are lost: a holder releases in a defer.
// The pool knows nothing of time: an owner that holds its places for ever keeps them.
package fair

import (
	"context"
	"slices"
	"sync"
)

// Greed is how much of what is free an owner may hold where nothing speaks for another figure: alone 7/8 of all.
const Greed = 7

// Pool is a number of places that owners share. Its methods may be called at the same time.
type Pool struct {
	capacity, greed int64

	mu      sync.Mutex
	free    int64
	held    map[string]int64
	waiting map[string][]*request // never an empty list
	turns   []string              // the owners in waiting, the next first
}

// request is one that waits.
type request struct {
	n       int64
	granted chan struct{}
}

// New returns a pool with all its places free. Greed is at least 1.
func New(capacity, greed int64) *Pool {
	return &Pool{capacity: capacity, greed: max(greed, 1), free: capacity, held: map[string]int64{}, waiting: map[string][]*request{}}
}

// Acquire takes n places for an owner, and waits until it may. More than the pool has counts as all of it. It returns
// the cause of ctx when that ends first.
func (p *Pool) Acquire(ctx context.Context, owner string, n int64) error {
	if p.TryAcquire(owner, n) { // nobody waits who could be served: that was seen to when places came back
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
	case <-r.granted: // also when ctx has ended: whether a free place is given must not be chance
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

// TryAcquire takes n places for an owner if it may have them now.
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

// Release gives n places of an owner back.
func (p *Pool) Release(owner string, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(owner, min(n, p.capacity))
	p.grant()
}

// Room returns how many places an owner may take now.
func (p *Pool) Room(owner string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	held := p.held[owner]
	if held > 0 && p.tight() {
		return 0
	}
	room := max((p.greed*p.free-held)/(p.greed+1), 0)
	if held == 0 {
		room = max(room, min(1, p.free))
	}
	return room
}

// Held returns how many places an owner has.
func (p *Pool) Held(owner string) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.held[owner]
}

// may says whether the rule lets an owner take n more.
func (p *Pool) may(owner string, n int64) bool {
	held := p.held[owner]
	return n <= p.free && (held == 0 || held+n <= p.greed*(p.free-n))
}

// tight says whether a newcomer waits for more than is free.
func (p *Pool) tight() bool {
	for owner, all := range p.waiting {
		if p.held[owner] == 0 && all[0].n > p.free {
			return true
		}
	}
	return false
}

// grant gives places to those who wait, by turns, until nobody may have any.
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
		if len(p.waiting[owner]) > 0 { // the others first
			p.turns = append(slices.Delete(p.turns, i, i+1), owner)
		}
		skipped, tight = 0, p.tight()
	}
}

// remove takes a request out of those that wait.
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
