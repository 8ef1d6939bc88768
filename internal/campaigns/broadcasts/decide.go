package broadcasts

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// decisionTTL is how long a decision is cached. A node discards the decision earlier if it receives a
// cache-invalidation hint for the broadcast.
const decisionTTL = 2 * time.Second

// maxDecisions is the maximum number of cached decisions.
const maxDecisions = 10_000

// decisions caches the decisions about broadcast emails, because package delivery requests a decision before each
// attempt.
type decisions struct {
	mu    sync.Mutex
	cache map[string]cachedDecision // by broadcast
	hints int64                     // number of received hints; a decision that was read before a hint is not cached
}

type cachedDecision struct {
	emails.Decision
	variants []Variant // with their current contents; nil if these are not known
	until    time.Time
}

// of returns the decision about an email with the given content.
func (c *cachedDecision) of(contentID string) emails.Decision {
	has := func(v Variant) bool { return v.contentID == contentID }
	if c.Decision == emails.Deliver && len(c.variants) > 0 && !slices.ContainsFunc(c.variants, has) {
		return emails.ChangeSender
	}
	return c.Decision
}

func (d *decisions) forget(broadcastID string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.hints++
	delete(d.cache, broadcastID)
}

// CachedDecision returns the decision about those emails of a broadcast that have the given content and have not yet
// been handed to a mail server. The decision may be a few seconds old.
func (s *Service) CachedDecision(ctx context.Context, teamID, broadcastID, contentID string) (emails.Decision,
	error) {
	d := &s.decisions
	d.mu.Lock()
	k, ok := d.cache[broadcastID]
	before := d.hints
	d.mu.Unlock()
	if ok && time.Now().Before(k.until) {
		return k.of(contentID), nil
	}
	k.until = time.Now().Add(decisionTTL)
	var err error
	if k.Decision, k.variants, err = s.decide(ctx, teamID, broadcastID); err != nil {
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
	return k.of(contentID), nil
}

// LockDecision returns the current decision about a broadcast's emails and locks it until the transaction ends.
func (s *Service) LockDecision(ctx context.Context, tx *db.Tx, teamID, broadcastID string) (emails.Decision,
	error) {
	status, err := lockStatus(ctx, tx, teamID, broadcastID)
	switch {
	case errors.Is(err, db.ErrNoRows):
		return emails.Deliver, nil // the broadcast does not exist because its team is being erased
	case err != nil:
		return emails.Deliver, fmt.Errorf("read the status of broadcast %s: %w", broadcastID, err)
	}
	return decisionFor(status), nil
}

// decisionFor returns the decision about the emails of a broadcast with the given status.
func decisionFor(status Status) emails.Decision {
	switch status {
	case Paused:
		return emails.Withhold
	case Canceled:
		return emails.Discard
	}
	return emails.Deliver
}
