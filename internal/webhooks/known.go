package webhooks

import (
	"context"
	"hash/fnv"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
)

const (
	hintTopic   = "webhooks"
	knownShared = 2 * time.Second // how long another node's change may go unnoticed when its hint is lost
	knownAlone  = time.Minute     // where no other node can change anything
	knownMax    = 20_000          // teams remembered
)

// known remembers the endpoints of teams, so that an event of a team without any costs a look-up in memory.
//
// What a transaction reads is remembered only once that transaction is on disk, and only if no endpoint of the team
// changed since before it read: otherwise a change could be overwritten by what was true before it.
type known struct {
	d   *db.DB
	ttl time.Duration

	mu    sync.Mutex
	epoch [256]int // by a hash of the team
	teams map[string]remembered
}

type remembered struct {
	endpoints []*Endpoint // not changed once here
	until     time.Time
}

func (k *known) start(d *db.DB) {
	k.d, k.ttl, k.teams = d, knownShared, map[string]remembered{}
	if d.Alone() {
		k.ttl = knownAlone
	}
	d.OnHint(hintTopic, func(teamID string) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.epoch[bucket(teamID)]++
		delete(k.teams, teamID)
	})
}

// changed makes every node read a team's endpoints again, once the transaction is on disk. On this node that is before
// Update returns.
func (k *known) changed(tx *db.Tx, teamID string) {
	tx.AfterCommit(func() { k.d.Hint(hintTopic, teamID) })
}

// bucket is the place of a team's epoch. Teams that share one only read more often.
func bucket(teamID string) byte {
	h := fnv.New32a()
	h.Write([]byte(teamID))
	return byte(h.Sum32())
}

func (k *known) look(teamID string) (endpoints []*Endpoint, epoch int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, ok := k.teams[teamID]
	return r.endpoints, k.epoch[bucket(teamID)], ok && time.Now().Before(r.until)
}

func (k *known) keep(teamID string, endpoints []*Endpoint, epoch int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if epoch != k.epoch[bucket(teamID)] {
		return
	}
	if len(k.teams) >= knownMax {
		clear(k.teams)
	}
	k.teams[teamID] = remembered{endpoints, time.Now().Add(k.ttl)}
}

// during returns a team's endpoints within a transaction.
func (k *known) during(ctx context.Context, tx *db.Tx, teamID string) ([]*Endpoint, error) {
	endpoints, epoch, ok := k.look(teamID)
	if ok {
		return endpoints, nil
	}
	endpoints, err := teamEndpoints(ctx, tx.Reader, teamID)
	if err == nil {
		tx.AfterCommit(func() { k.keep(teamID, endpoints, epoch) })
	}
	return endpoints, err
}

// one returns an endpoint, or nil when it is deleted.
func (k *known) one(ctx context.Context, teamID, endpointID string) (*Endpoint, error) {
	endpoints, epoch, ok := k.look(teamID)
	if !ok {
		var err error
		if endpoints, err = teamEndpoints(ctx, k.d.Reader, teamID); err != nil {
			return nil, err
		}
		k.keep(teamID, endpoints, epoch)
	}
	for _, e := range endpoints {
		if e.ID == endpointID {
			return e, nil
		}
	}
	return nil, nil
}
