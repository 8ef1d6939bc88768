package fair

import (
	"context"
	"slices"
	"sync"
)

// Turns is a number of places that owners take by turns: for work that is short, or where places are so few that a
// share for each newcomer cannot be kept free. Whoever finds them taken waits, and the next place goes to the owner who
// holds fewest; among equals they have turns. So an owner waits for one place to be left, however many others want it.
// A few places may be reserved for owners that have none. Its methods may be called at the same time.
type Turns struct {
	mu      sync.Mutex
	limit   int
	reserve int
	busy    int
	held    map[string]int
	waiting map[string][]chan struct{} // never an empty list
	owners  []string                   // in waiting, the next first
}

// NewTurns returns that many places, all free. Those of the reserve go only to owners that have none.
func NewTurns(limit, reserve int) *Turns {
	return &Turns{limit: limit, reserve: reserve, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// SetLimit changes how many places there are. Nothing is taken back: with fewer than are taken, nobody enters until
// enough have left.
func (t *Turns) SetLimit(limit, reserve int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.reserve = limit, reserve
	t.pass()
}

// Enter takes a place for an owner, and waits until it may. It returns the cause of ctx when that ends first, and then
// has taken nothing.
func (t *Turns) Enter(ctx context.Context, owner string) error {
	t.mu.Lock()
	if t.may(owner) {
		t.take(owner)
		t.mu.Unlock()
		return nil
	}
	turn := make(chan struct{})
	if len(t.waiting[owner]) == 0 {
		t.owners = append(t.owners, owner)
	}
	t.waiting[owner] = append(t.waiting[owner], turn)
	t.mu.Unlock()
	select {
	case <-turn:
		return nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := slices.Index(t.waiting[owner], turn); i >= 0 {
		t.remove(owner, i)
	} else { // it came with the end of ctx
		t.leave(owner)
	}
	return context.Cause(ctx)
}

// Leave gives a place of an owner back.
func (t *Turns) Leave(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leave(owner)
}

// Busy returns how many places are taken.
func (t *Turns) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Unused reports whether nobody has a place or waits for one.
func (t *Turns) Unused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy == 0 && len(t.owners) == 0
}

func (t *Turns) leave(owner string) {
	t.busy--
	if t.held[owner]--; t.held[owner] == 0 {
		delete(t.held, owner)
	}
	t.pass()
}

// pass gives free places to those who wait.
func (t *Turns) pass() {
	for t.busy < t.limit && len(t.owners) > 0 {
		next := t.owners[0]
		for _, owner := range t.owners[1:] {
			if t.held[owner] < t.held[next] {
				next = owner
			}
		}
		if !t.may(next) {
			return
		}
		close(t.waiting[next][0])
		t.take(next)
		t.remove(next, 0)
	}
}

// may says whether an owner may have a place now.
func (t *Turns) may(owner string) bool {
	return t.busy < t.limit-t.reserve || t.busy < t.limit && t.held[owner] == 0
}

func (t *Turns) take(owner string) {
	t.busy++
	t.held[owner]++
}

// remove takes one out of those that wait. The others of its owner stand behind the other owners.
func (t *Turns) remove(owner string, i int) {
	at := slices.Index(t.owners, owner)
	t.owners = slices.Delete(t.owners, at, at+1)
	if all := slices.Delete(t.waiting[owner], i, i+1); len(all) > 0 {
		t.waiting[owner] = all
		t.owners = append(t.owners, owner)
		return
	}
	delete(t.waiting, owner)
}
