package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

const (
	claimMax   = 256                  // maximum number of jobs that one transaction claims
	claimEvery = 5 * time.Millisecond // minimum time between claims while jobs run, so that claims are batched
	laneTurn   = 32                   // maximum number of jobs that a lane gets in one turn
	laneFirst  = 2                    // maximum number of jobs in a lane's first turn, because most lanes have one job
	deepMax    = 10_000               // maximum number of lanes for which the size of the next claim is remembered
	errorWait  = time.Second          // pause after a failed claim
	idleMax    = time.Minute          // maximum time between iterations of the loop
)

// dispatcher claims the jobs of one kind and starts their handlers. Hints, claims and regular scans tell the dispatcher
// which lanes may have due jobs, and when these jobs are due.
//
// Each lane known to the dispatcher is waiting, ready, paused or held. A waiting lane has an alarm set for its next
// job. A lane is paused while its owner uses its full share of the workers. A lane is held while its group is at its
// limit. Only the run method uses the fields that mu does not guard.
//
// A claim reads a lane only from the time of the earliest job that the dispatcher has heard of ([laneState.from]). If
// an old snapshot is open on PostgreSQL, for example of a dump, all jobs that have ended since leave rows behind, and a
// claim that read the lane from its start would read all these rows. Each change that makes a job due earlier sends a
// hint with the job's time after the commit, also if the job was inserted long before. The regular scans read lanes
// from the start, and therefore find jobs whose hints were lost.
type dispatcher struct {
	Kind
	r     *Runner
	exact bool // whether all owners together must stay within a group's limit

	active atomic.Int64 // number of running handlers

	kick chan struct{}
	done chan ended

	mu      sync.Mutex
	grown   map[string]bool  // groups whose limit has been raised since the loop's last iteration
	stepped bool             // whether the clock has stepped back since the last iteration
	hinted  map[string]int64 // due times by lane, from hints and scans since the last iteration
	look    chan struct{}    // a value on this channel requests an immediate scan

	alarms    *alarms
	ready     turns
	lanes     map[string]laneState
	deep      map[string]int    // number of jobs to claim next, for lanes whose last claim had several jobs
	held      map[string]*turns // held lanes by group
	limits    *alarms           // groups with held lanes and a limit that ends at a known time
	inHand    map[string]int    // number of claimed jobs by group
	shares    map[share]int     // number of claimed jobs by group and owner
	bulk      bulk              // number of claimed jobs in bulk lanes
	freed     map[string]bool   // groups in which jobs have ended, so that their lanes may continue
	claimed   map[string]bool   // ids of claimed jobs
	doubt     atomic.Bool       // whether a claim returned an error but may have been committed
	workers   *fairshare.Pool
	claimedAt time.Time
}

// laneState is the state of a lane that is ready or held, or that waits although it has due jobs.
type laneState struct {
	from   int64 // due time of the lane's first job, as far as the dispatcher knows
	queued bool  // whether the lane is ready or held
}

// share identifies an owner's claimed jobs in one group.
type share struct{ owner, group string }

// ended identifies a job whose handler has returned.
type ended struct {
	share
	id   string
	bulk bool
}

func newDispatcher(r *Runner, k Kind) *dispatcher {
	return &dispatcher{Kind: k, r: r, kick: make(chan struct{}, 1), look: make(chan struct{}, 1),
		done:  make(chan ended, k.Workers),
		grown: map[string]bool{}, hinted: map[string]int64{}, alarms: newAlarms(), lanes: map[string]laneState{},
		deep: map[string]int{}, held: map[string]*turns{},
		limits: newAlarms(), inHand: map[string]int{}, shares: map[share]int{}, bulk: newBulk(),
		freed: map[string]bool{}, claimed: map[string]bool{},
		workers: fairshare.New(int64(k.Workers), fairshare.Greed)}
}

// hint records that a lane has a job due at the given time. A call to hint does not block.
func (k *dispatcher) hint(lane string, at int64) {
	k.mu.Lock()
	k.note(lane, at)
	k.mu.Unlock()
	k.wake()
}

// note does the same as hint, but does not wake the loop. The caller of note must hold mu.
func (k *dispatcher) note(lane string, at int64) {
	if old, ok := k.hinted[lane]; !ok || at < old {
		k.hinted[lane] = at
	}
}

// regroup records that a group's limit was raised. A call to regroup does not block.
func (k *dispatcher) regroup(group string) {
	k.mu.Lock()
	k.grown[group] = true
	k.mu.Unlock()
	k.wake()
}

// restart records that the clock stepped back, so that the dispatcher recomputes all waits. A call to restart does not
// block.
func (k *dispatcher) restart() {
	k.mu.Lock()
	k.stepped = true
	k.mu.Unlock()
	k.wake()
	k.rescan()
}

func (k *dispatcher) rescan() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

func (k *dispatcher) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// run is the dispatcher's main loop: it waits for an event and then starts the due jobs.
func (k *dispatcher) run(ctx context.Context) {
	workers := newCrew()
	// After ctx ends, running jobs may continue for the grace period. After the grace period, the handlers' context
	// ends.
	hand, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var scanning sync.WaitGroup
	defer scanning.Wait()
	scanning.Go(func() { k.scanAll(ctx) })
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.kick:
		case <-timer.C:
		case e := <-k.done:
			k.release(e)
			k.drainDone()
		}
		if ctx.Err() != nil {
			break
		}
		next := k.turn(ctx, hand, workers)
		timer.Reset(next)
	}
	go func() {
		t := time.NewTimer(k.r.grace)
		defer t.Stop()
		select {
		case <-t.C:
			stop(ErrStopping)
		case <-hand.Done():
		}
	}()
	all := make(chan struct{})
	go func() { workers.end(); close(all) }()
	for {
		select {
		case <-k.done:
		case <-all:
			return
		}
	}
}

func (k *dispatcher) drainDone() {
	for {
		select {
		case e := <-k.done:
			k.release(e)
		default:
			return
		}
	}
}

// release removes an ended job from all counts.
func (k *dispatcher) release(e ended) {
	delete(k.claimed, e.id)
	k.workers.Release(e.owner, 1)
	if k.inHand[e.group]--; k.inHand[e.group] <= 0 {
		delete(k.inHand, e.group)
	}
	if k.shares[e.share]--; k.shares[e.share] <= 0 {
		delete(k.shares, e.share)
	}
	if e.bulk {
		k.bulk.add(e.share, -1)
	}
	k.freed[e.group] = true
}

// available returns how many more jobs in a group an owner may claim. The total parameter is the number of claimed jobs
// in the group, and own is the number of those jobs that the owner holds. The maximum for one owner is twice the limit
// minus the number of claimed jobs in the group. A single owner therefore gets the limit, and the next owner can start
// a job immediately, even if the first owner's jobs take a long time. Limits that end at a known time, and the limits
// for a kind without owners, are never exceeded.
func (k *dispatcher) available(limit int, again time.Time, total, own int) int {
	if k.exact || !again.IsZero() {
		return limit - total
	}
	free := 2*limit - total
	if own == 0 {
		return max(free/2, min(free, 1))
	}
	return (free - own) / 2
}

// refill makes lanes ready if their group or owner has free capacity again. For each group, refill makes only as many
// lanes ready as may be claimed now, because a group can have a hundred thousand lanes. If the group has no claimed
// jobs, refill makes all its lanes ready, because no ending job would trigger another refill.
func (k *dispatcher) refill() {
	if len(k.freed) == 0 {
		return
	}
	for group := range k.freed {
		h := k.held[group]
		if h == nil {
			continue
		}
		k.unhold(group, h)
		if h.empty() {
			delete(k.held, group)
		}
	}
	clear(k.freed)
	for owner := range k.ready.first.paused {
		if k.workers.Available(owner) > 0 {
			k.ready.first.resume(owner)
		}
	}
	for owner := range k.ready.bulk.paused {
		if k.bulkRoom(owner, 0) > 0 {
			k.ready.bulk.resume(owner)
		}
	}
}

// unhold makes as many of a group's held lanes ready as the group's limit allows. The order is one bulk lane if it is
// the bulk lanes' turn, then the other lanes, then more bulk lanes. The remaining held lanes wait until a job in the
// group ends or the group's limit ends. The whole group has only one alarm, because a group may have a hundred thousand
// lanes.
func (k *dispatcher) unhold(group string, h *turns) {
	limit, again := k.limit(group)
	total, planned := k.inHand[group], map[string]int{}
	bulk := limit - reserve(limit) - k.bulk.groups[group]
	// take finds the next lane whose owner may claim more jobs, makes the lane ready, and reports whether it found a
	// lane.
	take := func(isBulk bool) bool {
		r := h.of(isBulk)
		for range len(r.owners) {
			owner := r.owners[0]
			full := isBulk && bulk <= 0 || k.available(limit, again, total, k.shares[share{owner, group}]+planned[owner]) <= 0
			if full && k.inHand[group] > 0 { // if no jobs are claimed, no ending job would make the lane ready again
				r.pass()
				continue
			}
			_, lane := r.next()
			k.ready.add(owner, lane, isBulk)
			total++
			planned[owner]++
			if isBulk {
				bulk--
			}
			return true
		}
		return false
	}
	if !h.bulk.empty() && h.turn() {
		take(true)
	}
	for take(false) {
	}
	for take(true) {
	}
	if !again.IsZero() && !h.empty() {
		k.limits.set(group, again.UnixMicro())
	}
}

// limit returns how many jobs in a group may be claimed. For a temporary limit, the second result is the time at which
// the limit ends, by the database's clock.
func (k *dispatcher) limit(group string) (n int, again time.Time) {
	if k.Limit == nil {
		return k.PerLane, again
	}
	if n, again = k.Limit(group); !again.IsZero() {
		again = k.r.d.Now().Add(time.Until(again))
	}
	return min(k.PerLane, n), again
}

// enqueue makes a lane ready whose first job is due at the given time. If the lane is already ready or held, enqueue
// only sets its time back.
func (k *dispatcher) enqueue(lane string, from int64) {
	s, ok := k.lanes[lane]
	if !ok || from < s.from {
		s.from = from
	}
	if !s.queued {
		s.queued = true
		k.ready.add(k.Owner(lane), lane, k.Bulk(lane))
	}
	k.lanes[lane] = s
}

// turn processes hints, claims and starts due jobs, and returns how long to wait before the next turn if no event
// occurs earlier.
func (k *dispatcher) turn(ctx, hand context.Context, workers *crew) time.Duration {
	now := k.r.d.Now()
	k.mu.Lock()
	var hinted map[string]int64
	if len(k.hinted) > 0 {
		hinted, k.hinted = k.hinted, map[string]int64{}
	}
	for group := range k.grown {
		k.freed[group] = true
	}
	clear(k.grown)
	if k.stepped {
		k.stepped = false
		for group := range k.held {
			k.freed[group] = true
		}
	}
	k.mu.Unlock()
	for lane, at := range hinted {
		k.alarms.set(lane, at)
	}
	wait := idleMax
	for at, ok := k.alarms.soonest(); ok && at <= now.UnixMicro(); at, ok = k.alarms.soonest() {
		lane, _ := k.alarms.due(at)
		k.enqueue(lane, at)
	}
	for group, ok := k.limits.due(now.UnixMicro()); ok; group, ok = k.limits.due(now.UnixMicro()) {
		k.freed[group] = true
	}
	for k.refill(); !k.ready.empty() && len(k.claimed) < k.Workers && ctx.Err() == nil && !k.r.paused.Load(); k.refill() {
		if since := time.Since(k.claimedAt); len(k.claimed) > 0 && since < claimEvery {
			wait = min(wait, claimEvery-since)
			break
		}
		if k.doubt.Load() {
			if err := k.releaseClaims(ctx); err != nil {
				return k.failed(ctx, err)
			}
		}
		asks := k.plan()
		if len(asks) == 0 {
			break
		}
		if err := k.claim(ctx, hand, asks, workers); err != nil {
			k.doubt.Store(true)
			for _, a := range asks {
				k.workers.Release(a.owner, int64(a.n))
				k.freed[a.group] = true
				k.enqueue(a.lane, a.from)
			}
			return k.failed(ctx, err)
		}
	}
	for _, a := range []*alarms{k.alarms, k.limits} {
		if at, ok := a.soonest(); ok {
			wait = min(wait, time.UnixMicro(at).Sub(now))
		}
	}
	return max(wait, time.Millisecond)
}

func (k *dispatcher) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		k.r.log.Warn("could not claim jobs; trying again", "kind", k.Name, "error", err)
	}
	return errorWait
}

// plan assigns jobs to ready lanes in turn until the claim is full. Lanes in a full group are held until one of the
// group's jobs ends, or until the group's limit ends. If an owner uses its full share of the workers, its lanes are
// paused until the owner may use more workers. A lane gets few jobs in its first turn, and more after each full claim
// (see adapt).
// If each lane got a full turn immediately, eight lanes would fill a claim, although most lanes have only one job.
func (k *dispatcher) plan() (asks []ask) {
	free := min(claimMax, k.Workers-len(k.claimed))
	planned, shares, bulks := map[string]int{}, map[share]int{}, newBulk()
	inDoubt := doubts{k: k}
	for !k.ready.empty() && free > 0 {
		isBulk := k.ready.turn()
		ring := k.ready.of(isBulk)
		workers := int(k.workers.Available(ring.owners[0]))
		if isBulk {
			workers = k.bulkRoom(ring.owners[0], bulks.owners[ring.owners[0]])
		}
		if workers <= 0 {
			ring.pause()
			continue
		}
		owner, lane := ring.next()
		s := k.lanes[lane]
		s.queued = false
		k.lanes[lane] = s
		g := k.Group(lane)
		limit, at := k.limit(g)
		mine := share{owner, g}
		own := k.shares[mine] + shares[mine]
		all := k.available(limit, at, k.inHand[g]+planned[g], own)
		room, doubt := inDoubt.bound(all, mine, own)
		if isBulk && room > 0 {
			room = min(room, limit-reserve(limit)-k.bulk.groups[g]-bulks.groups[g])
			if k.Share != nil {
				most := k.Share(g, owner).Most
				room = min(room, most-reserve(most)-k.bulk.shares[mine]-bulks.shares[mine])
			}
		}
		if room <= 0 {
			switch {
			case !at.IsZero():
				k.alarms.set(lane, at.UnixMicro())
			case isBulk && k.bulk.groups[g]+bulks.groups[g] > 0:
				k.hold(g, owner, lane, isBulk)
			case k.inHand[g]+planned[g] == 0, all > 0 && own == 0: // no claimed job can end and release the lane
				k.alarms.set(lane, k.r.d.Now().Add(errorWait).UnixMicro())
			default:
				k.hold(g, owner, lane, isBulk)
			}
			continue
		}
		n := min(room, max(k.deep[lane], laneFirst), free, workers)
		k.workers.TryAcquire(owner, int64(n)) // TryAcquire cannot fail, because n is at most Available
		planned[g] += n
		shares[mine] += n
		k.ready.had(isBulk)
		if h := k.held[g]; h != nil {
			h.had(isBulk)
		}
		if isBulk {
			bulks.add(mine, n)
		}
		inDoubt.add(owner, doubt, n)
		free -= n
		asks = append(asks, ask{lane, owner, g, isBulk, n, s.from})
	}
	return asks
}

// hold suspends a lane until a job in its group ends or the group's limit changes (see unhold).
func (k *dispatcher) hold(group, owner, lane string, bulk bool) {
	h := k.held[group]
	if h == nil {
		h = &turns{}
		k.held[group] = h
	}
	s := k.lanes[lane]
	s.queued = true
	k.lanes[lane] = s
	h.add(owner, lane, bulk)
}
