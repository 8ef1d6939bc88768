package webhooks

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	firstAttempts = 4           // limit on concurrent attempts at an endpoint that has not responded yet
	quick         = time.Second // an endpoint with at most this response time gets perEndpoint concurrent attempts
	slowAttempts  = 2           // limit on concurrent attempts at the slowest endpoint
	failingRow    = 3           // an endpoint with this many consecutive failures gets fewer attempts, or pauses
	failingLanes  = 2           // limit on concurrent attempts at a failing endpoint
	restPart      = 3           // the first pause after timeouts is the attempt's timeout divided by this constant
	restMax       = 5 * time.Minute
	crowdedFirst  = time.Second // the first pause for an endpoint whose address has too many connections
	crowdedMax    = 16 * time.Second
	healthMax     = 100_000 // endpoints in memory
	warnAfter     = 5       // the team is warned after Config.DisableAfter divided by this constant
)

// health limits the concurrent attempts at each endpoint on this node, so that unreachable or slow endpoints occupy few
// workers. Before its first response, an endpoint gets four concurrent attempts. A working endpoint gets as many
// attempts as it can answer in a second, within limits. A failing endpoint gets two attempts. After repeated timeouts,
// an endpoint gets a pause, then one attempt, then a longer pause, until the endpoint answers. During a pause, waiting
// messages are not attempted and their schedules do not advance.
//
// The health state is kept only in memory and is empty when the process starts.
type health struct {
	timeout time.Duration // time limit for an attempt

	mu  sync.Mutex
	all map[string]*condition
}

// condition is the health state of an endpoint.
type condition struct {
	mean     time.Duration // mean duration of attempts, weighted toward the latest ones
	failures int           // consecutive
	silent   int           // number of consecutive attempts, up to the latest, that timed out
	rest     time.Duration // length of the latest pause after timeouts; 0 while the endpoint answers
	crowd    time.Duration // length of the latest pause because of too many connections; 0 after an attempt
	until    time.Time     // end of the current pause
}

// limit returns how many attempts may run concurrently at an endpoint. If no attempt may run, limit also returns the
// time at which the caller should call limit again.
func (h *health) limit(endpointID string) (int, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.all[endpointID]
	switch {
	case c == nil:
		return firstAttempts, time.Time{}
	case time.Now().Before(c.until):
		return 0, c.until
	case c.rest > 0 || c.crowd > 0:
		return 1, time.Time{}
	case c.failures >= failingRow:
		return failingLanes, time.Time{}
	}
	return int(min(max(perEndpoint*quick/max(c.mean, 1), slowAttempts), perEndpoint)), time.Time{}
}

func (h *health) of(endpointID string) *condition {
	c := h.all[endpointID]
	if c == nil {
		if h.all == nil || len(h.all) >= healthMax {
			h.all = map[string]*condition{}
		}
		c = &condition{}
		h.all[endpointID] = c
	}
	return c
}

// note records an attempt's result in the health state of its endpoint.
func (h *health) note(endpointID string, success bool, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.of(endpointID)
	if c.mean == 0 || success && c.failures > 0 {
		c.mean = a.took
	}
	c.mean += (a.took - c.mean) / 4
	c.crowd = 0
	if success {
		c.failures, c.silent, c.rest, c.until = 0, 0, 0, time.Time{}
		return
	}
	c.failures++
	if !a.late {
		c.silent, c.rest = 0, 0
		return
	}
	now := time.Now()
	// Attempts that began before a pause do not extend the pause.
	if c.silent++; c.silent >= failingRow && !now.Before(c.until) {
		c.rest = min(max(2*c.rest, h.timeout/restPart), restMax)
		c.until = now.Add(c.rest)
	}
}

// crowded records that an attempt could not get a connection, and returns the length of the endpoint's pause.
func (h *health) crowded(endpointID string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, now := h.of(endpointID), time.Now()
	if !now.Before(c.until) {
		c.crowd = min(max(2*c.crowd, crowdedFirst), crowdedMax)
		c.until = now.Add(c.crowd)
	}
	return c.until.Sub(now)
}

func (h *health) forget(endpointID string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.all, endpointID)
}

// judged applies the consequences of an attempt to its endpoint: the start of a failing period, a warning to the team,
// or disabling.
func (s *Service) judged(ctx context.Context, tx *db.Tx, e *Endpoint, v verdict) error {
	now := tx.Now()
	switch {
	case v.state == Success:
		// A success clears failing_since only if failing_since is more than a minute old or the team was warned,
		// because every such change is a write. A remaining failing_since is harmless, because the endpoint's
		// deliveries are checked before the endpoint is disabled.
		if !e.FailingSince.IsZero() && (e.warned || now.Sub(e.FailingSince) > time.Minute) {
			markWorking(ctx, tx, e)
		}
		return nil
	case v.gone:
		return s.disable(ctx, tx, e, "The endpoint answered 410 Gone.")
	case e.FailingSince.IsZero():
		// The cached endpoints are not invalidated, because setting failing_since again has no effect, while reloading
		// would cause many reads when many endpoints begin to fail.
		markFailing(ctx, tx, e)
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
		s.endpoints.changed(tx, e.TeamID)
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
	s.endpoints.changed(tx, e.TeamID)
	return s.p.Notify(ctx, tx, e.TeamID, "A webhook endpoint fails",
		fmt.Sprintf("Every attempt to deliver to the webhook endpoint\n\n  %s\n\n"+
			"since %s failed; the last because %s. If that goes on, the webhook (%s) will be disabled on %s.\n", shownURL(e.URL),
			e.FailingSince.Format("2006-01-02 15:04 UTC"), v.reason, e.ID,
			e.FailingSince.Add(s.c.DisableAfter).Format("2006-01-02")))
}

func (s *Service) disable(ctx context.Context, tx *db.Tx, e *Endpoint, reason string) error {
	first, err := disable(ctx, tx, e, reason)
	if err != nil || !first {
		return err
	}
	s.endpoints.changed(tx, e.TeamID)
	return s.p.Notify(ctx, tx, e.TeamID, "A webhook endpoint was disabled",
		fmt.Sprintf("The webhook endpoint\n\n  %s\n\nis disabled. %s\n\n"+
			"When it works again, enable the webhook (%s); then failed messages can be recovered.\n", shownURL(e.URL),
			reason, e.ID))
}

// shownURL returns an endpoint's URL for a notice, without its user name, password, query and fragment, because these
// may contain credentials and a notice is an email to several members.
func shownURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(its URL is not valid)"
	}
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}
