package zones

import (
	"context"
	"sync"
	"time"
)

const (
	checkEvery  = time.Minute            // shortest time between two checks of an awaited zone
	checkPause  = 100 * time.Millisecond // pause after a check, because anybody can send queries
	queriesWait = 100                    // zones that wait for a check; further ones are checked after a later query
)

// queries are recent queries about awaited zones.
type queries struct {
	waiting chan string

	mu sync.Mutex
	at map[string]time.Time // time of the last query that counted, by zone
}

func newQueries() queries {
	return queries{waiting: make(chan string, queriesWait), at: map[string]time.Time{}}
}

// Queried notes a query about an awaited zone. It does not wait.
func (s *Service) Queried(zone string) {
	q, now := &s.queries, s.Now()
	q.mu.Lock()
	defer q.mu.Unlock()
	if last, ok := q.at[zone]; ok && now.Sub(last) < checkEvery {
		return
	}
	select {
	case q.waiting <- zone:
		q.at[zone] = now
	default:
	}
}

// forget forgets queries that prevent no check any more.
func (q *queries) forget(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for zone, last := range q.at {
		if now.Sub(last) >= checkEvery {
			delete(q.at, zone)
		}
	}
}

// checkAwaited checks the awaited zones that resolvers ask about, until ctx ends.
func (s *Service) checkAwaited(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case zone := <-s.queries.waiting:
			if err := s.Check(ctx, zone); err != nil && ctx.Err() == nil {
				s.Log.Warn("a new delegation is looked up later, because it could not be done now", "zone", zone, "error", err)
			}
		}
		if !s.sleep(ctx, checkPause, nil) {
			return
		}
	}
}
