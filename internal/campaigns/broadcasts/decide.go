package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// trusted is how long a decision is remembered. A hint ends it sooner, on every node that gets it.
const decisionTTL = 2 * time.Second

// maxDecisions is how many decisions are remembered.
const maxDecisions = 10_000

// decisions remembers what becomes of the emails of broadcasts, because delivery asks before each attempt.
type decisions struct {
	mu    sync.Mutex
	cache map[string]cachedDecision // by broadcast
	hints int64                     // counts the hints: what was read before one is not remembered after it
}

type cachedDecision struct {
	emails.Decision
	until time.Time
}

func (d *decisions) forget(broadcastID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hints++
	delete(d.cache, broadcastID)
}

// CachedDecision returns what becomes of those emails of a broadcast that no host was given yet. It may be some seconds old.
func (s *Service) CachedDecision(ctx context.Context, broadcastID string) (emails.Decision, error) {
	d := &s.decisions
	d.mu.Lock()
	k, ok := d.cache[broadcastID]
	before := d.hints
	d.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.Decision, nil
	}
	k.until = time.Now().Add(decisionTTL)
	var err error
	if k.Decision, err = s.decide(ctx, nil, broadcastID); err != nil {
		return k.Decision, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hints == before {
		if len(d.cache) >= maxDecisions {
			clear(d.cache)
		}
		d.cache[broadcastID] = k
	}
	return k.Decision, nil
}

// LockDecision is CachedDecision for a transaction: it is exact, and holds until the transaction ends.
func (s *Service) LockDecision(ctx context.Context, tx *db.Tx, broadcastID string) (emails.Decision, error) {
	return s.decide(ctx, tx, broadcastID)
}

func (s *Service) decide(ctx context.Context, tx *db.Tx, broadcastID string) (emails.Decision, error) {
	status, err := statusOf(ctx, s.p.DB.Reader, tx, broadcastID)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return emails.Deliver, nil // Its team is being erased.
	case err != nil:
		return emails.Deliver, fmt.Errorf("read the status of broadcast %s: %w", broadcastID, err)
	case status == Paused:
		return emails.Withhold, nil
	case status == Canceled:
		return emails.Discard, nil
	}
	return emails.Deliver, nil
}
