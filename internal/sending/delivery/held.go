package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// heldError begins the error of a job that waits because the operator has paused its destination.
const heldError = "the operator has paused the destination"

// Apply takes over the settings that may change while the node runs: Relays, Destinations, LaneRate and Schedule.
// Attempts that have begun end with the settings with which they began. Calls of Apply must not overlap.
func (s *Service) Apply(c Config) {
	if len(c.Schedule) == 0 {
		c.Schedule = defaultSchedule
	}
	next := routing.New(routing.Config{Direct: s.c.Transport != Relay, Relays: c.Relays, Destinations: c.Destinations,
		Connections: s.c.LaneConnections, RelayConnections: s.c.MaxConnections, Rate: c.LaneRate})
	s.schedule.Store(&c.Schedule)
	before := s.routes.Swap(next)
	s.pauses.use(next, before == nil, s.shape.now())
	if before == nil || s.p.OnLimitRaised == nil {
		return
	}
	for _, group := range append(before.Groups(), next.Groups()...) {
		s.p.OnLimitRaised(group)
	}
}

// Held returns why mail to a domain waits, if the operator has paused it, and since when it is known to be paused. A
// destination that is paused by the names of its hosts is known only after the first attempt. Mail that goes to no host
// does not wait.
func (s *Service) Held(domain string) (reason string, since time.Time, held bool) {
	d := s.routes.Load().Known(domain)
	if d == nil || !d.Paused || s.c.Transport == Capture || s.isSandbox(domain) {
		return "", time.Time{}, false
	}
	all := *s.pauses.all.Load()
	for i := len(all) - 1; i >= 0; i-- { // a pause goes on if the operator changes something else
		if d := all[i].table.Known(domain); d == nil || !d.Paused || !since.IsZero() && !all[i].to.Equal(since) {
			break
		}
		since = all[i].from
	}
	return d.Reason, since, true
}

// holdBack releases a job that was claimed as one of a group, but whose hosts belong to another group that is paused or
// takes no more messages now. From now on, the lane belongs to that group, which decides when its jobs are claimed.
func (s *Service) holdBack(ctx context.Context, t *try, claimed, group string) (held bool, err error) {
	if group == claimed {
		return false, nil
	}
	l := s.routes.Load().Limits(group)
	if l.First > 0 && l.Rate == 0 { // messages to a relay wait for their turn
		return false, nil
	}
	now := s.shape.now()
	ok, again := s.shape.admits(group, now)
	if ok {
		return false, nil
	}
	why := ""
	if l.Paused {
		why = heldError
	}
	at := s.p.DB.Now().Add(jobs.Jitter(again.Sub(now)))
	return true, s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Wait(ctx, tx, t.job, at, why)
		return nil
	})
}
