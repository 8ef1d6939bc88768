package fairshare

import (
	"context"
	"slices"
	"sync"
)

// Turns is a limited number of slots that owners share in turn. Turns is for short work, or for so few slots that none
// can be kept free for new owners. When all slots are in use, the next released slot goes to the waiting owner that
// holds the fewest slots; ties are resolved round-robin. A new owner therefore waits only until one slot is released,
// even if many owners wait. Some slots may be reserved for owners that hold no slots. Turns is safe for concurrent use.
type Turns struct {
	mu      sync.Mutex
	limit   int
	reserve int
	busy    int
	held    map[string]int
	waiting map[string][]chan struct{} // waiting requests, keyed by owner; no list is empty
	owners  []string                   // keys of waiting, in the order in which owners are served
}

// NewTurns returns a Turns with limit slots, all free. The reserve parameter is the number of slots that are kept for
// owners that hold no slots.
func NewTurns(limit, reserve int) *Turns {
	return &Turns{limit: limit, reserve: reserve, held: map[string]int{}, waiting: map[string][]chan struct{}{}}
}

// SetLimit changes the number of slots. SetLimit does not revoke slots. If more slots are in use than the new limit
// allows, no owner gets a slot until enough slots are released.
func (t *Turns) SetLimit(limit, reserve int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.limit, t.reserve = limit, reserve
	t.pass()
}

// Acquire acquires a slot for an owner and waits until a slot is available. If ctx ends first, Acquire acquires no slot
// and returns the cancellation cause of ctx.
func (t *Turns) Acquire(ctx context.Context, owner string) error {
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
	} else { // the slot was granted just as ctx ended
		t.release(owner)
	}
	return context.Cause(ctx)
}

// Release frees one of an owner's slots.
func (t *Turns) Release(owner string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.release(owner)
}

// Busy returns how many slots are in use.
func (t *Turns) Busy() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy
}

// Unused reports whether no slots are in use and no owner waits for a slot.
func (t *Turns) Unused() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy == 0 && len(t.owners) == 0
}

func (t *Turns) release(owner string) {
	t.busy--
	if t.held[owner]--; t.held[owner] == 0 {
		delete(t.held, owner)
	}
	t.pass()
}

// pass gives free slots to waiting owners.
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

// may reports whether an owner may acquire a slot immediately.
func (t *Turns) may(owner string) bool {
	return t.busy < t.limit-t.reserve || t.busy < t.limit && t.held[owner] == 0
}

func (t *Turns) take(owner string) {
	t.busy++
	t.held[owner]++
}

// remove removes a waiting request. The remaining requests of the same owner are then served after those of the other
// owners.
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
