package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// On PostgreSQL, a look for earlier messages of a chain takes time for each partition that it reads. An email's chain
// has a beginning, but the chain of an address or of a contact may be of any age. The column webhooks.open_since
// therefore holds an id that is not greater than those of the endpoint's unfinished deliveries, and no look goes behind
// it. The column begins with the time of the endpoint. When a job has to look back over more than a day, the column is
// raised, to an id of two days ago or to that of the first unfinished delivery.
//
// A delivery can become unfinished in three ways. A new message has an id of the present. A fan-out inserts deliveries
// for its message, so the column is not raised above the messages of fan-outs. A recovery reopens failed messages of
// any age, and lowers the column in the same transaction. Recoveries and raises lock the endpoint.
const (
	farBack    = 24 * time.Hour
	raiseEvery = time.Hour // minimum interval between two attempts of a node to raise the column for an endpoint
)

// raises remembers when this node last raised the column for each endpoint.
type raises struct {
	mu   sync.Mutex
	last map[string]time.Time
}

func (x *raises) due(endpointID string, now time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if last, ok := x.last[endpointID]; ok && now.Sub(last) < raiseEvery {
		return false
	}
	if x.last == nil || len(x.last) >= cacheMax {
		x.last = map[string]time.Time{}
	}
	x.last[endpointID] = now
	return true
}

// raise raises an endpoint's column open_since after a job has looked back over the given time, if that was long.
func (s *Service) raise(ctx context.Context, teamID, endpointID string, back time.Duration) error {
	if back < farBack || !s.raises.due(endpointID, time.Now()) {
		return nil
	}
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if _, err := lockEndpoint(ctx, tx, teamID, endpointID); err != nil {
			return err
		}
		return raiseOpenSince(ctx, tx, teamID, endpointID, tx.Now().Add(-nearTime))
	})
	if err != nil && fault.KindOf(err) != fault.NotFound {
		return fmt.Errorf("find the first unfinished delivery of webhook %s: %w", endpointID, err)
	}
	return nil
}
