package jobs

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

const (
	claimMax   = 256                  // jobs claimed in one transaction
	claimEvery = 5 * time.Millisecond // between claims while jobs are in hand, so that claims are batched
	laneTurn   = 32                   // the most jobs that a lane gets in one turn
	laneFirst  = 2                    // and in its first: most lanes have one job, and places are few
	errorWait  = time.Second          // after a failed claim
	idleMax    = time.Minute          // between turns of the loop when nothing happens
)

// dispatcher claims the jobs of one kind and starts their handlers. It knows which lanes may have jobs due, and from
// when: from hints, from its own claims, and from regular scans. A lane that it knows is in one of four states: among
// the alarms until a job of it may be due; ready; ready but paused, because its owner has its share of the workers in
// hand; or held with its group, which has reached its limit. Only run uses the fields that mu does not guard.
type dispatcher struct {
	Kind
	r     *Runner
	exact bool // limits of groups hold exactly, whatever the number of owners
	kick  chan struct{}
	done  chan ended

	mu      sync.Mutex
	grown   map[string]bool  // groups whose limit grew since the last turn
	stepped bool             // the clock stepped back since the last turn
	hinted  map[string]int64 // lane -> when it has a job due, as hinted or scanned since the last turn
	look    chan struct{}    // asks for a scan at once

	alarms    *alarms
	ready     turns
	queued    map[string]bool   // the lanes that are ready or held
	deep      map[string]int    // lanes that had as many jobs as they were asked for -> how many to ask for next
	held      map[string]*turns // by group
	limits    *alarms           // groups with held lanes whose limit holds until a time
	inHand    map[string]int    // jobs by group
	shares    map[share]int     // jobs by group and owner
	bulk      bulk              // jobs of bulk lanes among them
	freed     map[string]bool   // groups with fewer jobs in hand than before; workers of their owners may be free too
	claimed   map[string]bool   // jobs in hand, by id
	doubt     atomic.Bool       // a claim returned an error, but may have been committed
	workers   *fairshare.Pool
	claimedAt time.Time
}

// share identifies what an owner has in hand of a group.
type share struct{ owner, group string }

// ended is a job whose worker has returned.
type ended struct {
	share
	id   string
	bulk bool
}

func newDispatcher(r *Runner, k Kind) *dispatcher {
	return &dispatcher{Kind: k, r: r, kick: make(chan struct{}, 1), look: make(chan struct{}, 1),
		done:  make(chan ended, k.Workers),
		grown: map[string]bool{}, hinted: map[string]int64{}, alarms: newAlarms(), queued: map[string]bool{},
		deep: map[string]int{}, held: map[string]*turns{},
		limits: newAlarms(), inHand: map[string]int{}, shares: map[share]int{}, bulk: newBulk(),
		freed: map[string]bool{}, claimed: map[string]bool{},
		workers: fairshare.New(int64(k.Workers), fairshare.Greed)}
}

// hint notes that a lane has a job due at a time. It does not block.
func (k *dispatcher) hint(lane string, at int64) {
	k.mu.Lock()
	k.note(lane, at)
	k.mu.Unlock()
	k.wake()
}

// note is hint without waking the loop. The caller holds mu.
func (k *dispatcher) note(lane string, at int64) {
	if old, ok := k.hinted[lane]; !ok || at < old {
		k.hinted[lane] = at
	}
}

// regroup notes that the limit of a group grew. It does not block.
func (k *dispatcher) regroup(group string) {
	k.mu.Lock()
	k.grown[group] = true
	k.mu.Unlock()
	k.wake()
}

// restart notes that the clock stepped back: what waits until a time must find out anew when that is. It does not
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

// run is the loop: it waits for one event, and then starts what is due.
func (k *dispatcher) run(ctx context.Context) {
	var workers sync.WaitGroup
	// Jobs in hand may go on after ctx ends for the time of grace; then their context ends too.
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
		next := k.turn(ctx, hand, &workers)
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
	go func() { workers.Wait(); close(all) }()
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

// release removes a job that has ended from all counts.
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

// room is how many more jobs of a group an owner may have in hand, when there are total of the group and own of the
// owner. An owner may have as many as stay free of twice the limit: an owner that is alone gets the limit, and the
// next owner finds room at once, whatever the jobs of the first wait for. A limit that holds until a time is exact,
// and so are the limits of a kind without owners.
func (k *dispatcher) room(limit int, again time.Time, total, own int) int {
	if k.exact || !again.IsZero() {
		return limit - total
	}
	free := 2*limit - total
	if own == 0 {
		return max(free/2, min(free, 1))
	}
	return (free - own) / 2
}

// refill makes lanes ready of groups and owners in which capacity became free. It takes as many lanes of a group as
// may be claimed now, because there can be a hundred thousand of them; when the group has no job in hand whose end
// would call refill again, it takes all.
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
		if k.workers.Room(owner) > 0 {
			k.ready.first.resume(owner)
		}
	}
	for owner := range k.ready.bulk.paused {
		if k.bulkRoom(owner, 0) > 0 {
			k.ready.bulk.resume(owner)
		}
	}
}

// unhold makes as many lanes of a group ready as there is room for: a bulk lane if it is the turn of bulk, then the
// other lanes, then bulk lanes. The rest waits until a job of the group ends, or until the time at which its limit
// ends: one alarm for the group, because it may have a hundred thousand lanes.
func (k *dispatcher) unhold(group string, h *turns) {
	limit, again := k.limit(group)
	total, planned := k.inHand[group], map[string]int{}
	bulk := limit - reserve(limit) - k.bulk.groups[group]
	// take makes the next lane ready whose owner may have more, and reports whether there is one.
	take := func(isBulk bool) bool {
		r := h.of(isBulk)
		for range len(r.owners) {
			owner := r.owners[0]
			full := isBulk && bulk <= 0 || k.room(limit, again, total, k.shares[share{owner, group}]+planned[owner]) <= 0
			if full && k.inHand[group] > 0 { // with none in hand, nothing would make it ready again
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

// limit returns how many jobs of a group may be in hand. If that holds only for a time, again is when it ends, by the
// database's clock.
func (k *dispatcher) limit(group string) (n int, again time.Time) {
	if k.Limit == nil {
		return k.PerLane, again
	}
	if n, again = k.Limit(group); !again.IsZero() {
		again = k.r.d.Now().Add(time.Until(again))
	}
	return min(k.PerLane, n), again
}

func (k *dispatcher) enqueue(lane string) {
	if !k.queued[lane] {
		k.queued[lane] = true
		k.ready.add(k.Owner(lane), lane, k.Bulk(lane))
	}
}

// turn takes in hints, claims and starts what is due, and returns how long to wait for the next turn if nothing
// happens.
func (k *dispatcher) turn(ctx, hand context.Context, workers *sync.WaitGroup) time.Duration {
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
	for lane, ok := k.alarms.due(now.UnixMicro()); ok; lane, ok = k.alarms.due(now.UnixMicro()) {
		k.enqueue(lane)
	}
	for group, ok := k.limits.due(now.UnixMicro()); ok; group, ok = k.limits.due(now.UnixMicro()) {
		k.freed[group] = true
	}
	for k.refill(); !k.ready.empty() && len(k.claimed) < k.Workers && ctx.Err() == nil; k.refill() {
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
				k.enqueue(a.lane)
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

// plan gives ready lanes their turns until the claim is full. Lanes of a group that is full are held until one of its
// jobs ends, or until the time at which the group's limit ends. Lanes of an owner that has its share of the workers
// are paused until it may have more. A lane is asked for few jobs first, and for more each time that it had them all:
// if each of two hundred thousand lanes with one job were asked for a full turn, eight of them would fill a claim.
func (k *dispatcher) plan() (asks []ask) {
	free := min(claimMax, k.Workers-len(k.claimed))
	planned, shares, bulks := map[string]int{}, map[share]int{}, newBulk()
	inDoubt := doubts{k: k}
	for !k.ready.empty() && free > 0 {
		isBulk := k.ready.turn()
		ring := k.ready.of(isBulk)
		workers := int(k.workers.Room(ring.owners[0]))
		if isBulk {
			workers = k.bulkRoom(ring.owners[0], bulks.owners[ring.owners[0]])
		}
		if workers <= 0 {
			ring.pause()
			continue
		}
		owner, lane := ring.next()
		delete(k.queued, lane)
		g := k.Group(lane)
		limit, at := k.limit(g)
		mine := share{owner, g}
		own := k.shares[mine] + shares[mine]
		all := k.room(limit, at, k.inHand[g]+planned[g], own)
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
			case k.inHand[g]+planned[g] == 0, all > 0 && own == 0: // no job in hand will release it
				k.alarms.set(lane, k.r.d.Now().Add(errorWait).UnixMicro())
			default:
				k.hold(g, owner, lane, isBulk)
			}
			continue
		}
		n := min(room, max(k.deep[lane], laneFirst), free, workers)
		k.workers.TryAcquire(owner, int64(n)) // cannot fail: Room allowed it
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
		asks = append(asks, ask{lane, owner, g, isBulk, n})
	}
	return asks
}

// hold sets a lane aside until a job of its group ends, or the limit changes (see unhold).
func (k *dispatcher) hold(group, owner, lane string, bulk bool) {
	h := k.held[group]
	if h == nil {
		h = &turns{}
		k.held[group] = h
	}
	k.queued[lane] = true
	h.add(owner, lane, bulk)
}
