package webhooks

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// The number of messages that wait for one endpoint, and for all endpoints of a team, is limited. Without limits on
// waiting messages, slow or unreachable endpoints would fill the disk. An endpoint that has reached its limit is full:
// its new messages are recorded as failed, and the team is notified. Messages for a full endpoint appear as failed in
// its history, and [Service.Recover] can deliver them. When a quarter of the backlog limit is free again, the endpoint
// accepts messages again.
//
// The backlog is counted in jobs, each of which contains up to perJob messages of one chain. The backlog is counted
// using the index on lanes, and never within a transaction that blocks others. After a node has inserted an eighth of
// the limit, it enqueues a job that measures the backlog. The job repeats the measurement as long as an endpoint is
// full. Between measurements, the backlog may exceed its limit.
const (
	endpointMax         = 100_000
	teamMax             = 500_000
	measureFraction     = 8 // a measurement is due when this fraction of the limit has been inserted
	measureEvery        = 5 * time.Second
	backlogKind         = "webhook.backlog"
	notifyTeamEvery     = time.Hour      // minimum interval between two notices to a team
	notifyEndpointEvery = 24 * time.Hour // minimum interval between two notices about an endpoint
	namedInNotice       = 10
)

// entryCounter counts the jobs that this node has inserted for each team since the node last requested a measurement.
type entryCounter struct {
	mu sync.Mutex
	n  map[string]int
}

// When the transaction commits, add counts n more jobs for the team. If the count reaches step, add returns true,
// because a measurement is due.
func (c *entryCounter) add(tx *db.Tx, teamID string, n, step int) bool {
	c.mu.Lock()
	due := c.n[teamID]+n >= step
	c.mu.Unlock()
	tx.AfterCommit(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch {
		case due:
			delete(c.n, teamID)
		case c.n == nil || len(c.n) >= cacheMax:
			c.n = map[string]int{teamID: n}
		default:
			c.n[teamID] += n
		}
	})
	return due
}

// insertJobs inserts the jobs of an outbox, and a job that measures the backlog if a measurement is due.
func (s *Service) insertJobs(ctx context.Context, tx *db.Tx, o *outbox) {
	step := max(1, min(s.c.EndpointMax, s.c.TeamMax)/measureFraction)
	for team, n := range o.insertJobs(ctx, tx, s.p.Queue) {
		if s.recent.add(tx, team, n, step) {
			s.p.Queue.Insert(ctx, tx, jobs.New{Kind: backlogKind, Lane: team, TeamID: team, Dedupe: team})
		}
	}
}

// backlogs returns the job kind that measures backlogs.
func (s *Service) backlogs() jobs.Kind {
	return jobs.Kind{Name: backlogKind, Handle: s.measure, Workers: 4, PerLane: 1, Lease: lease,
		Schedule: []time.Duration{time.Minute, 5 * time.Minute, time.Hour}}
}

// measure handles a job that determines a team's full endpoints. The measurement job is rescheduled as long as an
// endpoint is full.
func (s *Service) measure(ctx context.Context, j jobs.Job) error {
	all, err := teamEndpoints(ctx, s.p.DB.Reader, j.TeamID)
	if err != nil {
		return err
	}
	waiting, err := waitingJobs(ctx, s.p.DB.Reader, j.TeamID)
	if err != nil {
		return err
	}
	was := map[string]bool{}
	for _, e := range all {
		was[e.ID] = !e.FullSince.IsZero()
	}
	now := overfull(waiting, was, s.c.EndpointMax, s.c.TeamMax)
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		full := false
		for _, e := range all {
			if now[e.ID] != was[e.ID] {
				e.FullSince = db.Time(0)
				if now[e.ID] {
					e.FullSince = tx.Now()
				}
				markFull(ctx, tx, e)
				s.endpoints.changed(tx, j.TeamID)
			}
			full = full || now[e.ID]
		}
		if !full {
			s.p.Queue.Finish(ctx, tx, j)
			return nil
		}
		if err := s.notifyFull(ctx, tx, j.TeamID, all); err != nil {
			return err
		}
		s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(measureEvery), "the backlog is above its limit")
		return nil
	})
}

// overfull returns the full endpoints: those with at least endpointMax waiting jobs. If the team has teamMax waiting
// jobs in total, endpoints with at least an equal share of teamMax are also full. A full endpoint stays full until a
// quarter of its limit is free.
func overfull(waiting map[string]int, was map[string]bool, endpointMax, teamMax int) map[string]bool {
	less := func(n int, yes bool) int {
		if yes {
			return n - n/4
		}
		return n
	}
	total, any := 0, false
	for _, n := range waiting {
		total += n
	}
	for _, full := range was {
		any = any || full
	}
	team := total >= less(teamMax, any)
	now := map[string]bool{}
	for endpoint, n := range waiting {
		if n >= less(endpointMax, was[endpoint]) || team && n >= less(teamMax/len(waiting), was[endpoint]) {
			now[endpoint] = true
		}
	}
	return now
}

// notifyFull notifies a team about its full endpoints, at most once an hour. A notice is sent only if the last notice
// about at least one of the full endpoints is at least a day old.
func (s *Service) notifyFull(ctx context.Context, tx *db.Tx, teamID string, all []*Endpoint) error {
	var urls []string
	due := false
	for _, e := range all {
		if tx.Now().Sub(e.fullNotified) < notifyTeamEvery {
			return nil
		}
		if !e.FullSince.IsZero() {
			urls = append(urls, shownURL(e.URL))
			due = due || tx.Now().Sub(e.fullNotified) >= notifyEndpointEvery
		}
	}
	if !due {
		return nil
	}
	for _, e := range all {
		if !e.FullSince.IsZero() {
			markFullNotified(ctx, tx, e)
		}
	}
	more := ""
	if n := len(urls) - namedInNotice; n > 0 {
		more = fmt.Sprintf("\nand %d more.\n", n)
	}
	return s.p.Notify(ctx, tx, teamID, "Webhook endpoints answer too slowly",
		fmt.Sprintf("Too many webhook events wait, because these endpoints answer too slowly or not at "+
			"all:\n\n  %s\n%s\nUntil they have caught up, new events for them are recorded as failed and not "+
			"delivered. When they work again, recover the failed events with POST /webhooks/{id}/recover.\n",
			strings.Join(urls[:min(len(urls), namedInNotice)], "\n  "), more))
}
