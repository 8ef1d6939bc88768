package jobs

import "container/heap"

// bulkTurn is how often bulk has a turn where other lanes wait for the same thing: each time so many turns have passed.
const bulkTurn = 8

// turns is lanes that wait for the same thing. Those that are not bulk go first, but for a small share.
type turns struct {
	first, bulk ring
	passed      int // jobs of first since bulk had one
}

func (t *turns) of(bulk bool) *ring {
	if bulk {
		return &t.bulk
	}
	return &t.first
}

func (t *turns) add(owner, lane string, bulk bool) { t.of(bulk).add(owner, lane) }

// turn says whether the next turn is bulk's. There must be a lane.
func (t *turns) turn() (bulk bool) {
	return t.first.empty() || !t.bulk.empty() && t.passed >= bulkTurn-1
}

// had takes in that a turn was not in vain.
func (t *turns) had(bulk bool) {
	if t.passed++; bulk {
		t.passed = 0
	}
}

func (t *turns) empty() bool { return t.first.empty() && t.bulk.empty() }

// ring is lanes by owner: owners have turns, and so do the lanes of each.
type ring struct {
	owners []string            // the next first, without those that are paused
	lanes  map[string][]string // by owner, the next first; never an empty list
	paused map[string]bool     // owners whose lanes wait for something else besides
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

// next takes out the lane whose turn it is. There must be one.
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

// pass gives the turn to the next owner.
func (t *ring) pass() { t.owners = append(t.owners[1:], t.owners[0]) }

// pause takes the turn from the owner who has it, until resume. It costs nothing however many lanes there are.
func (t *ring) pause() {
	if t.paused == nil {
		t.paused = map[string]bool{}
	}
	t.paused[t.owners[0]] = true
	t.owners = t.owners[1:]
}

// resume gives an owner turns again.
func (t *ring) resume(owner string) {
	delete(t.paused, owner)
	if len(t.lanes[owner]) > 0 {
		t.owners = append(t.owners, owner)
	}
}

func (t *ring) empty() bool { return len(t.owners) == 0 }

// alarms is lanes by the time at which something of them may be due.
type alarms struct {
	at    map[string]int64
	queue alarmQueue // of times that were current once; at says which still are
}

func newAlarms() *alarms { return &alarms{at: map[string]int64{}} }

// set brings a lane's time forward, or notes it.
func (a *alarms) set(lane string, at int64) {
	if old, ok := a.at[lane]; ok && old <= at {
		return
	}
	a.at[lane] = at
	heap.Push(&a.queue, alarm{lane, at})
	if len(a.queue) > 2*len(a.at)+1000 { // mostly times that are no longer current
		a.queue = a.queue[:0]
		for lane, at := range a.at {
			a.queue = append(a.queue, alarm{lane, at})
		}
		heap.Init(&a.queue)
	}
}

// due takes out the next lane whose time has come.
func (a *alarms) due(now int64) (lane string, ok bool) {
	at, ok := a.soonest()
	if !ok || at > now {
		return "", false
	}
	lane = heap.Pop(&a.queue).(alarm).lane
	delete(a.at, lane)
	return lane, true
}

// soonest returns the earliest time, if there is one.
func (a *alarms) soonest() (at int64, ok bool) {
	for len(a.queue) > 0 {
		first := a.queue[0]
		if at, ok := a.at[first.lane]; ok && at == first.at {
			return at, true
		}
		heap.Pop(&a.queue)
	}
	return 0, false
}

type alarm struct {
	lane string
	at   int64
}

// alarmQueue is a heap of alarms, the earliest first.
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
