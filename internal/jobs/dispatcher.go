package jobs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
)

var errStopping = errors.New("stopping")

const (
	claimMax   = 256                  // jobs claimed in one transaction
	claimEvery = 5 * time.Millisecond // between claims while there is work in hand, so that they come in batches
	laneTurn   = 32                   // jobs that one lane gets before the next has its turn
	scanAlone  = time.Minute          // between scans for lanes when every insert is seen
	scanShared = 10 * time.Second     // and when other nodes insert
	scanPage   = 500
	errorWait  = time.Second // after a failed claim
)

// dispatcher hands out the jobs of one kind. It knows which lanes may have something due, and from when: from hints, from
// its own claims, and from a scan now and then. Only run touches the fields that mu does not guard.
type dispatcher struct {
	Kind
	r    *Runner
	kick chan struct{}
	done chan string // the group of a job that ended

	mu      sync.Mutex
	hinted  map[string]int64 // lane -> when something of it is due, as hinted since the last look
	scanNow bool

	lanes     map[string]int64 // lane -> the earliest time at which something of it may be due
	ready     []string         // lanes that may have something due, in the order of their turns
	queued    map[string]bool  // members of ready
	held      map[string][]string
	inHand    map[string]int // group -> jobs in hand
	total     int
	soonest   int64 // of lanes
	claimedAt time.Time
	scanAt    time.Time
}

func newDispatcher(r *Runner, k Kind) *dispatcher {
	return &dispatcher{Kind: k, r: r, kick: make(chan struct{}, 1), done: make(chan string, k.Workers),
		hinted: map[string]int64{}, lanes: map[string]int64{}, queued: map[string]bool{}, held: map[string][]string{},
		inHand: map[string]int{}, soonest: never}
}

// hint notes that a lane has something due at a time. It does not block.
func (k *dispatcher) hint(lane string, at int64) {
	k.mu.Lock()
	if old, ok := k.hinted[lane]; !ok || at < old {
		k.hinted[lane] = at
	}
	k.mu.Unlock()
	k.wake()
}

func (k *dispatcher) rescan() {
	k.mu.Lock()
	k.scanNow = true
	k.mu.Unlock()
	k.wake()
}

func (k *dispatcher) wake() {
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

// run is the loop: one select, then hand out what is due.
func (k *dispatcher) run(ctx context.Context) {
	var workers sync.WaitGroup
	// Work in hand outlives ctx by the grace; then its context ends too.
	hand, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-k.kick:
		case <-timer.C:
		case g := <-k.done:
			k.release(g)
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
			stop(errStopping)
		case <-hand.Done():
		}
	}()
	ended := make(chan struct{})
	go func() { workers.Wait(); close(ended) }()
	for {
		select {
		case <-k.done:
		case <-ended:
			return
		}
	}
}

func (k *dispatcher) drainDone() {
	for {
		select {
		case g := <-k.done:
			k.release(g)
		default:
			return
		}
	}
}

// release counts a job of a group as ended and gives the lanes that waited for it their turn.
func (k *dispatcher) release(group string) {
	k.total--
	if k.inHand[group]--; k.inHand[group] <= 0 {
		delete(k.inHand, group)
	}
	k.unhold(group)
}

func (k *dispatcher) unhold(group string) {
	for _, lane := range k.held[group] {
		k.enqueue(lane)
	}
	delete(k.held, group)
}

func (k *dispatcher) enqueue(lane string) {
	if !k.queued[lane] {
		k.queued[lane] = true
		k.ready = append(k.ready, lane)
	}
}

// turn takes in hints, scans when it is time, claims and starts what is due, and says how long nothing needs to be done.
func (k *dispatcher) turn(ctx, hand context.Context, workers *sync.WaitGroup) time.Duration {
	now := time.Now()
	k.mu.Lock()
	var hinted map[string]int64
	scan := k.scanNow
	if len(k.hinted) > 0 {
		hinted, k.hinted = k.hinted, map[string]int64{}
	}
	k.scanNow = false
	k.mu.Unlock()
	for lane, at := range hinted {
		k.expect(lane, at)
	}
	if scan || !now.Before(k.scanAt) {
		if err := k.scan(ctx); err != nil {
			return k.failed(ctx, err)
		}
	}
	wait := time.Until(k.scanAt)
	nowMicros := now.UnixMicro()
	if k.soonest <= nowMicros {
		k.soonest = never
		for lane, at := range k.lanes {
			if at <= nowMicros {
				delete(k.lanes, lane)
				k.enqueue(lane)
			} else {
				k.soonest = min(k.soonest, at)
			}
		}
	}
	for len(k.ready) > 0 && k.total < k.Workers && ctx.Err() == nil {
		if since := time.Since(k.claimedAt); k.total > 0 && since < claimEvery {
			wait = min(wait, claimEvery-since)
			break
		}
		asks := k.plan()
		if len(asks) == 0 {
			break
		}
		if err := k.claim(ctx, hand, asks, workers); err != nil {
			for _, a := range asks {
				k.enqueue(a.lane)
			}
			return k.failed(ctx, err)
		}
	}
	if k.soonest < never {
		wait = min(wait, time.UnixMicro(k.soonest).Sub(now))
	}
	return max(wait, time.Millisecond)
}

func (k *dispatcher) failed(ctx context.Context, err error) time.Duration {
	if ctx.Err() == nil {
		k.r.log.Warn("could not claim jobs; trying again", "kind", k.Name, "error", err)
	}
	return errorWait
}

func (k *dispatcher) expect(lane string, at int64) {
	if old, ok := k.lanes[lane]; !ok || at < old {
		k.lanes[lane] = at
		k.soonest = min(k.soonest, at)
	}
}

// ask is one lane's share of a claim.
type ask struct {
	lane, group string
	n           int
}

// plan gives ready lanes their turns until the claim is full. Lanes of a group that is full are held until one of
// its jobs ends, or until the group's limit says to ask again.
func (k *dispatcher) plan() (asks []ask) {
	free := min(claimMax, k.Workers-k.total)
	planned := map[string]int{}
	for len(k.ready) > 0 && free > 0 {
		lane := k.ready[0]
		k.ready = k.ready[1:]
		delete(k.queued, lane)
		g := k.Group(lane)
		limit := k.PerLane
		var at time.Time
		if k.Limit != nil {
			var n int
			n, at = k.Limit(g)
			limit = min(limit, n)
		}
		room := limit - k.inHand[g] - planned[g]
		if room <= 0 {
			switch {
			case !at.IsZero():
				k.expect(lane, at.UnixMicro())
			case k.inHand[g]+planned[g] == 0: // nothing in hand will bring it back
				k.expect(lane, time.Now().Add(errorWait).UnixMicro())
			default:
				k.held[g] = append(k.held[g], lane)
			}
			continue
		}
		n := min(room, laneTurn, free)
		planned[g] += n
		free -= n
		asks = append(asks, ask{lane, g, n})
	}
	return asks
}

const claimJobs = `WITH due AS MATERIALIZED (SELECT id FROM jobs WHERE kind = $1 AND lane = $2 AND run_at <= $3
	ORDER BY run_at LIMIT $4%s)
	UPDATE jobs SET run_at = $5, attempt = attempt + 1, holder = $6 WHERE id IN (SELECT id FROM due)
	RETURNING id, team_id, payload, attempt, last_error, created_at`

// claim takes due jobs of the lanes asked, in one transaction, and starts their handlers.
func (k *dispatcher) claim(ctx, hand context.Context, asks []ask, workers *sync.WaitGroup) error {
	defer func() { k.claimedAt = time.Now() }()
	claimed := make([][]Job, len(asks))
	next := make([]int64, len(asks))
	err := k.r.d.Update(ctx, func(tx *db.Tx) error {
		now := tx.Now()
		text := fmt.Sprintf(claimJobs, tx.SkipLocked())
		for i, a := range asks {
			rows, err := tx.Query(ctx, text, k.Name, a.lane, now.UnixMicro(), a.n, now.Add(k.Lease).UnixMicro(), k.r.node)
			claimed[i], err = db.Collect(rows, err, func(r db.Row) (Job, error) {
				j := Job{Kind: k.Name, Lane: a.lane}
				var created int64
				err := r.Scan(&j.ID, &j.TeamID, &j.Payload, &j.Attempt, &j.LastError, &created)
				j.CreatedAt = db.Time(created)
				return j, err
			})
			if err != nil {
				return err
			}
			if len(claimed[i]) == a.n {
				continue
			}
			err = tx.QueryRow(ctx, `SELECT COALESCE(MIN(run_at), 0) FROM jobs WHERE kind = $1 AND lane = $2 AND run_at > $3`,
				k.Name, a.lane, now.UnixMicro()).Scan(&next[i])
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, a := range asks {
		for _, j := range claimed[i] {
			k.total++
			k.inHand[a.group]++
			workers.Go(func() {
				defer func() { k.done <- a.group }()
				k.r.work(hand, k, j)
			})
		}
		switch {
		case len(claimed[i]) == a.n:
			k.enqueue(a.lane)
		case next[i] > 0 && next[i] < never:
			k.expect(a.lane, next[i])
		}
	}
	for _, a := range asks {
		if k.inHand[a.group] == 0 { // the lane had nothing due after all, and no job's end will free those that waited for it
			k.unhold(a.group)
		}
	}
	return nil
}

const scanLanes = `WITH RECURSIVE l (lane) AS (
	SELECT MIN(lane) FROM jobs WHERE kind = $1 AND lane > $2
	UNION ALL
	SELECT (SELECT MIN(j.lane) FROM jobs j WHERE j.kind = $1 AND j.lane > l.lane) FROM l WHERE l.lane IS NOT NULL)
	SELECT l.lane, (SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane)
	FROM l WHERE l.lane IS NOT NULL LIMIT $3`

// scan looks which lanes there are, one step of the index each, however many jobs they hold.
func (k *dispatcher) scan(ctx context.Context) error {
	last := ""
	for {
		rows, err := k.r.d.Query(ctx, scanLanes, k.Name, last, scanPage)
		n := 0
		_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
			var at int64
			if err := r.Scan(&last, &at); err != nil {
				return struct{}{}, err
			}
			n++
			if at < never {
				k.expect(last, at)
			}
			return struct{}{}, nil
		})
		if err != nil {
			return err
		}
		if n < scanPage {
			break
		}
	}
	every := scanShared
	if k.r.d.Alone() {
		every = scanAlone
	}
	k.scanAt = time.Now().Add(every)
	return nil
}
