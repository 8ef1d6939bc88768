package jobs

import "container/heap"

// bulkTurn determines how often bulk lanes get a turn while other lanes also wait: one turn in every bulkTurn turns.
const bulkTurn = 8

// turns is a set of lanes that wait for the same resource. Lanes that are not bulk have priority, except in one of
// every bulkTurn turns.
type turns struct {
	first, bulk ring
	passed      int // number of turns that other lanes have had since a bulk lane's last turn
}

func (t *turns) of(bulk bool) *ring {
	if bulk {
		return &t.bulk
	}
	return &t.first
}

func (t *turns) add(owner, lane string, bulk bool) { t.of(bulk).add(owner, lane) }

// turn reports whether the next turn is for a bulk lane. The caller must ensure that the set is not empty.
func (t *turns) turn() (bulk bool) {
	return t.first.empty() || !t.bulk.empty() && t.passed >= bulkTurn-1
}

// had records that a lane has used its turn; bulk tells whether it was a bulk lane.
func (t *turns) had(bulk bool) {
	if t.passed++; bulk {
		t.passed = 0
	}
}

func (t *turns) empty() bool { return t.first.empty() && t.bulk.empty() }

// ring is a set of lanes, grouped by owner. Owners are served in turn, and so are the lanes of each owner.
type ring struct {
	owners []string            // owners that are not paused, in turn order
	lanes  map[string][]string // each owner's lanes, in turn order; no list is empty
	paused map[string]bool     // owners that have used up their share of workers
}

func (t *ring) add(owner, lane string) {
	if t.lanes == nil {
		t.lanes = map[string][]string{}
	}
	if len(t.lanes[owner]) == 0 && !t.paused[owner] {
		t.owners = append(t.owners, owner)
	}
	t.lanes[owner] = append(t.lanes[owner], lane)
}

// next removes and returns the lane whose turn it is. The caller must ensure that the ring is not empty.
func (t *ring) next() (owner, lane string) {
	owner, t.owners = t.owners[0], t.owners[1:]
	all := t.lanes[owner]
	lane = all[0]
	if len(all) == 1 {
		delete(t.lanes, owner)
		return owner, lane
	}
	t.lanes[owner] = all[1:]
	t.owners = append(t.owners, owner)
	return owner, lane
}

// pass skips the current owner and gives the turn to the next owner.
func (t *ring) pass() { t.owners = append(t.owners[1:], t.owners[0]) }

// pause skips the owner whose turn it is until resume is called. The run time of pause does not depend on the number of
// lanes.
func (t *ring) pause() {
	if t.paused == nil {
		t.paused = map[string]bool{}
	}
	t.paused[t.owners[0]] = true
	t.owners = t.owners[1:]
}

// resume ends an owner's pause, so that the owner gets turns again.
func (t *ring) resume(owner string) {
	delete(t.paused, owner)
	if len(t.lanes[owner]) > 0 {
		t.owners = append(t.owners, owner)
	}
}

func (t *ring) empty() bool { return len(t.owners) == 0 }

// alarms is a set of names, each with a time. A name is either a lane, with the time of its next job, or a group, with
// the time at which its limit ends.
type alarms struct {
	at    map[string]int64
	queue alarmQueue // may contain outdated times; the at map has the current times
}

func newAlarms() *alarms { return &alarms{at: map[string]int64{}} }

// set adds a name with a time, or moves the name to an earlier time. If the name already has an earlier time, set
// changes nothing.
func (a *alarms) set(name string, at int64) {
	if old, ok := a.at[name]; ok && old <= at {
		return
	}
	a.at[name] = at
	heap.Push(&a.queue, alarm{name, at})
	if len(a.queue) > 2*len(a.at)+1000 { // mostly outdated times
		a.queue = a.queue[:0]
		for name, at := range a.at {
			a.queue = append(a.queue, alarm{name, at})
		}
		heap.Init(&a.queue)
	}
}

// due removes and returns the name with the earliest time, if that time is not after now.
func (a *alarms) due(now int64) (name string, ok bool) {
	at, ok := a.soonest()
	if !ok || at > now {
		return "", false
	}
	name = heap.Pop(&a.queue).(alarm).name
	delete(a.at, name)
	return name, true
}

// soonest returns the earliest time, with ok == false if no alarm is set.
func (a *alarms) soonest() (at int64, ok bool) {
	for len(a.queue) > 0 {
		first := a.queue[0]
		if at, ok := a.at[first.name]; ok && at == first.at {
			return at, true
		}
		heap.Pop(&a.queue)
	}
	return 0, false
}

type alarm struct {
	name string
	at   int64
}

// alarmQueue is a heap of alarms, earliest first.
type alarmQueue []alarm

func (q alarmQueue) Len() int           { return len(q) }
func (q alarmQueue) Less(i, j int) bool { return q[i].at < q[j].at }
func (q alarmQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *alarmQueue) Push(x any)        { *q = append(*q, x.(alarm)) }
func (q *alarmQueue) Pop() any {
	all := *q
	last := all[len(all)-1]
	all[len(all)-1] = alarm{}
	*q = all[:len(all)-1]
	return last
}
