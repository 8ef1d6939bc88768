package webhooks

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	hintTopic   = "webhooks"
	cacheShared = 2 * time.Second // maximum delay of another node's change if its hint is lost
	cacheAlone  = time.Minute     // cache time if there are no other nodes
	cacheMax    = 20_000          // cached teams
)

// endpointCache caches the endpoints of teams, so that an event of a team without endpoints costs only a look-up in
// memory.
//
// Endpoints that a transaction reads are cached only after it commits, and only if no endpoint of the team changed
// since before the read. Otherwise an older state could replace a newer one.
type endpointCache struct {
	d   *db.DB
	ttl time.Duration

	mu    sync.Mutex
	epoch [256]int // indexed by bucket of the team
	teams map[string]cachedEndpoints
}

type cachedEndpoints struct {
	endpoints []*Endpoint // must not be modified
	until     time.Time
}

func (k *endpointCache) start(d *db.DB) {
	k.d, k.ttl, k.teams = d, cacheShared, map[string]cachedEndpoints{}
	if d.Alone() {
		k.ttl = cacheAlone
	}
	d.OnHint(hintTopic, func(teamID string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.epoch[bucket(teamID)]++
		delete(k.teams, teamID)
	})
}

// changed makes all nodes read a team's endpoints again after the transaction commits. On this node the change takes
// effect before Update returns.
func (k *endpointCache) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { k.d.Hint(hintTopic, teamID) })
}

// bucket returns the index of a team in epoch. Several teams may share an index. Their endpoints are then only read
// more often than necessary.
func bucket(teamID string) byte {
	h := fnv.New32a()
	h.Write([]byte(teamID))
	return byte(h.Sum32())
}

func (k *endpointCache) get(teamID string) (endpoints []*Endpoint, epoch int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.teams[teamID]
	return r.endpoints, k.epoch[bucket(teamID)], ok && time.Now().Before(r.until)
}

func (k *endpointCache) put(teamID string, endpoints []*Endpoint, epoch int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if epoch != k.epoch[bucket(teamID)] {
		return
	}
	if len(k.teams) >= cacheMax {
		clear(k.teams)
	}
	k.teams[teamID] = cachedEndpoints{endpoints, time.Now().Add(k.ttl)}
}

// forTx returns a team's endpoints within a transaction.
func (k *endpointCache) forTx(ctx context.Context, tx *db.Tx, teamID string) ([]*Endpoint, error) {
	endpoints, epoch, ok := k.get(teamID)
	if ok {
		return endpoints, nil
	}
	endpoints, err := teamEndpoints(ctx, tx.Reader, teamID)
	if err == nil {
		tx.AfterCommit(func() { k.put(teamID, endpoints, epoch) })
	}
	return endpoints, err
}

// endpoint returns an endpoint, or nil if it is deleted.
func (k *endpointCache) endpoint(ctx context.Context, teamID, endpointID string) (*Endpoint, error) {
	endpoints, epoch, ok := k.get(teamID)
	if !ok {
		var err error
		if endpoints, err = teamEndpoints(ctx, k.d.Reader, teamID); err != nil {
			return nil, err
		}
		k.put(teamID, endpoints, epoch)
	}
	for _, e := range endpoints {
		if e.ID == endpointID {
			return e, nil
		}
	}
	return nil, nil
}
