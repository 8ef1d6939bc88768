package webhooks

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
)

const (
	failingRow   = 3 // failures in a row after which an endpoint gets fewer workers
	failingLanes = 2 // workers that it gets then
	warnAfter    = 5 // the team is warned after a fifth of the time after which the endpoint is disabled
)

// health counts failures in a row on this node, so that endpoints that are dead or slow hold few workers. It starts anew with
// the process: then a dead endpoint holds its full share of workers for one timeout.
type health struct {
	mu       sync.Mutex
	failures map[string]int
}

// limit says how many attempts may run at an endpoint.
func (h *health) limit(endpointID string) (int, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failures[endpointID] < failingRow {
		return perEndpoint, time.Time{}
	}
	return failingLanes, time.Time{}
}

func (h *health) note(endpointID string, success bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case success:
		delete(h.failures, endpointID)
	case h.failures == nil:
		h.failures = map[string]int{endpointID: 1}
	default:
		h.failures[endpointID]++
	}
}

func (h *health) forget(endpointID string) { h.note(endpointID, true) }

// judged records what an attempt says about its endpoint: since when it fails, and whether that is the end of it.
func (s *Service) judged(ctx context.Context, tx *db.Tx, e *Endpoint, v verdict) error {
	now := tx.Now()
	switch {
	case v.state == Success:
		// Not at every success of an endpoint that sometimes fails: that would be a write each time. Before it is disabled,
		// its deliveries are asked.
		if !e.FailingSince.IsZero() && (e.warned || now.Sub(e.FailingSince) > time.Minute) {
			markWorking(ctx, tx, e)
			s.known.changed(tx, e.TeamID)
		}
		return nil
	case v.gone:
		return s.disable(ctx, tx, e, "The endpoint answered 410 Gone.")
	case e.FailingSince.IsZero():
		markFailing(ctx, tx, e)
		s.known.changed(tx, e.TeamID)
		return nil
	}
	failing := now.Sub(e.FailingSince)
	if failing < s.c.DisableAfter/warnAfter || failing < s.c.DisableAfter && e.warned {
		return nil
	}
	only, err := failedSince(ctx, tx.Reader, e, e.FailingSince)
	if err != nil {
		return err
	}
	if !only {
		markWorking(ctx, tx, e)
		s.known.changed(tx, e.TeamID)
		return nil
	}
	if failing >= s.c.DisableAfter {
		return s.disable(ctx, tx, e, fmt.Sprintf("Every attempt since %s failed; the last because %s.",
			e.FailingSince.Format("2006-01-02 15:04 UTC"), v.reason))
	}
	return s.warn(ctx, tx, e, v)
}

func (s *Service) warn(ctx context.Context, tx *db.Tx, e *Endpoint, v verdict) error {
	first, err := warn(ctx, tx, e)
	if err != nil || !first {
		return err
	}
	s.known.changed(tx, e.TeamID)
	return s.p.Notify(ctx, tx, e.TeamID, "A webhook endpoint fails", fmt.Sprintf("Every attempt to deliver to the webhook endpoint\n\n  %s\n\n"+
		"since %s failed; the last because %s. If that goes on, the webhook (%s) will be disabled on %s.\n", e.URL,
		e.FailingSince.Format("2006-01-02 15:04 UTC"), v.reason, e.ID, e.FailingSince.Add(s.c.DisableAfter).Format("2006-01-02")))
}

func (s *Service) disable(ctx context.Context, tx *db.Tx, e *Endpoint, reason string) error {
	first, err := disable(ctx, tx, e, reason)
	if err != nil || !first {
		return err
	}
	s.known.changed(tx, e.TeamID)
	return s.p.Notify(ctx, tx, e.TeamID, "A webhook endpoint was disabled", fmt.Sprintf("The webhook endpoint\n\n  %s\n\nis disabled. %s\n\n"+
		"When it works again, enable the webhook (%s); what failed meanwhile can be recovered.\n", e.URL, reason, e.ID))
}
