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
	cacheShared = 2 * time.Second // maximum delay before another node's change is seen if its notification is lost
	cacheAlone  = time.Minute     // cache duration if this is the only node
	cacheMax    = 20_000          // cached teams
)

// endpointCache caches teams' endpoints, so that an event needs only a look-up in memory if its team has no endpoints.
//
// Endpoints that a transaction reads are cached only after it commits, and only if none of the team's endpoints has
// changed since the read began. Without the two conditions for caching endpoints, an older state could replace a newer
// one in the cache.
type endpointCache struct {
	d   *db.DB
	ttl time.Duration

	mu    sync.Mutex
	epoch [256]int // indexed by the team's bucket
	teams map[string]cachedEndpoints
}

type cachedEndpoints struct {
	endpoints []*Endpoint // callers must not modify the endpoints
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

// changed makes all nodes reload a team's endpoints after the transaction commits. On the node that changes an
// endpoint, the change takes effect before Update returns.
func (k *endpointCache) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { k.d.Hint(hintTopic, teamID) })
}

// bucket returns a team's index in the epoch array. Several teams may have the same bucket. Teams with the same bucket
// only reload their endpoints more often than necessary.
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

// forTx returns a team's endpoints for use within a transaction.
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

// endpoint returns an endpoint, or nil if it was deleted.
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
