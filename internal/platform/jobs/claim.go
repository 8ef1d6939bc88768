package jobs

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// ask is the part of a claim that concerns one lane. The worker pool has already granted the workers for an ask.
type ask struct {
	lane, owner, group string
	bulk               bool
	n                  int
	from               int64 // see laneState
}

// claim claims due jobs in the requested lanes, all in one transaction, and starts the jobs' handlers.
func (k *dispatcher) claim(ctx, hand context.Context, asks []ask, workers *crew) error {
	defer func() { k.claimedAt = time.Now() }()
	k.r.active.Add(1)
	defer k.r.active.Add(-1)
	var claimed map[string][]Job
	var next map[string]int64
	var now int64
	life := k.r.life.Load()
	err := k.r.d.Update(ctx, func(tx *db.Tx) (err error) {
		// A node that declares this node dead waits for the end of this claim and then makes the claimed jobs due. If this
		// node was already declared dead, the claim fails.
		tx.QueueHold(ctx, errDeclaredDead, "nodes", db.ID(k.r.node))
		claimed, next, err = claim(ctx, tx, k.Name, k.r.node, asks)
		now = tx.Now().UnixMicro()
		return err
	})
	if err != nil {
		return err
	}
	for _, a := range asks {
		if less := a.n - len(claimed[a.lane]); less > 0 {
			k.workers.Release(a.owner, int64(less))
			k.freed[a.group] = true
		}
		for _, j := range claimed[a.lane] {
			j.life = life
			k.claimed[j.ID] = true
			k.inHand[a.group]++
			k.shares[share{a.owner, a.group}]++
			if a.bulk {
				k.bulk.add(share{a.owner, a.group}, 1)
			}
			k.r.active.Add(1)
			workers.run(func() {
				defer k.r.active.Add(-1)
				defer func() { k.done <- ended{share{a.owner, a.group}, j.ID, a.bulk} }()
				k.r.work(hand, k, j)
			})
		}
		delete(k.lanes, a.lane)
		at, more := next[a.lane]
		k.adapt(a, len(claimed[a.lane]), more && at <= now)
		switch {
		case !more:
		case at > now:
			k.alarms.set(a.lane, at)
		case len(claimed[a.lane]) > 0:
			k.enqueue(a.lane, at)
		default: // another transaction has locked the due jobs
			k.lanes[a.lane] = laneState{from: at}
			k.alarms.set(a.lane, now+errorWait.Microseconds())
		}
	}
	return nil
}

// adapt sets how many jobs the next claim from a lane requests, after a claim of n jobs that left due jobs or not. A
// lane whose jobs arrive one by one is claimed in batches as large as the last one, because each claim has a fixed
// cost.
func (k *dispatcher) adapt(a ask, n int, left bool) {
	if len(k.deep) >= deepMax {
		clear(k.deep)
	}
	switch {
	case n == a.n, n > 0 && left:
		k.deep[a.lane] = min(4*a.n, laneTurn)
	case n >= laneFirst:
		k.deep[a.lane] = min(n+laneFirst, laneTurn)
	default:
		delete(k.deep, a.lane)
	}
}

// releaseClaims makes due again the jobs that this node holds but no worker runs. Such jobs are left behind by a claim
// that was committed although it returned an error.
func (k *dispatcher) releaseClaims(ctx context.Context) error {
	rows, err := k.r.d.Query(ctx, selectHeld, k.Name, db.ID(k.r.node))
	held, err := db.Collect(rows, err, func(r db.Row) (Job, error) {
		j := Job{Kind: k.Name}
		err := r.Scan((*db.ID)(&j.ID), &j.Lane, &j.Attempt)
		return j, err
	})
	if err != nil {
		return fmt.Errorf("look for jobs that were claimed unnoticed: %w", err)
	}
	k.doubt.Store(false)
	for _, j := range held {
		if !k.claimed[j.ID] {
			k.r.giveBack(ctx, j)
		}
	}
	return nil
}
