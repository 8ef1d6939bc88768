package contacts

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Counting is limited because a count reads the whole segment. For a segment with a filter, it reads the contacts that
// each rule of the filter selects.
const (
	usageAtOnce = 100_000     // Usage counts at most this many contacts on each request
	countAtOnce = 10_000      // segments with at most this many contacts are counted on each request
	countAge    = time.Minute // a request triggers a new count of a larger segment if its last count is older than this
	countQueue  = 50          // maximum number of waiting segments per team; requests beyond that are dropped
	countTeams  = 100         // maximum number of teams that wait for a read slot, each with one segment
)

// countScheduler queues segments that Run must count. The teams take turns, with one segment per turn.
//
// A count waits for a read slot. If its team has many other reads waiting, the wait is long. Counts for several teams
// therefore wait at the same time, so that no team is delayed by another team's reads. Only one count runs at a time,
// so that long counts never occupy all read slots.
type countScheduler struct {
	directLimit int
	usageLimit  int
	running     chan struct{} // holds an element while a count runs

	mu      sync.Mutex
	waiting map[string][]string // segment ids by team; no list is empty
	order   []string            // the teams in waiting that are not in active, in the order of their turns
	active  map[string]string   // by team: the segment that is currently being counted
	wake    chan struct{}       // holds an element if order may contain a team
}

func newCountScheduler() *countScheduler {
	return &countScheduler{directLimit: countAtOnce, usageLimit: usageAtOnce, running: make(chan struct{}, 1),
		waiting: map[string][]string{}, active: map[string]string{}, wake: make(chan struct{}, 1)}
}

// enqueue schedules a new count of a segment, unless one is already scheduled or the team's queue is full.
func (c *countScheduler) enqueue(g segments.Segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.waiting[g.TeamID]
	if c.active[g.TeamID] == g.ID || slices.Contains(all, g.ID) || len(all) >= countQueue {
		return
	}
	c.waiting[g.TeamID] = append(all, g.ID)
	if len(all) == 0 && c.active[g.TeamID] == "" {
		c.appendTurn(g.TeamID)
	}
}

// appendTurn adds a team to the end of the turn order and wakes Run.
func (c *countScheduler) appendTurn(teamID string) {
	c.order = append(c.order, teamID)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next returns a segment to count, or "" if no segment is waiting. After the count, the caller must call done.
func (c *countScheduler) next() (teamID, segmentID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.order) == 0 {
		return "", ""
	}
	teamID, c.order = c.order[0], c.order[1:]
	all := c.waiting[teamID]
	segmentID, c.active[teamID] = all[0], all[0]
	if c.waiting[teamID] = all[1:]; len(all) == 1 {
		delete(c.waiting, teamID)
	}
	return teamID, segmentID
}

// done ends the team's turn. If the team has more waiting segments, it gets another turn.
func (c *countScheduler) done(teamID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, teamID)
	if len(c.waiting[teamID]) > 0 {
		c.appendTurn(teamID)
	}
}

// errCounting is returned by runExclusive if another count is running.
var errCounting = errors.New("another count runs")

// runExclusive calls its function argument, or returns errCounting if another count is running.
func (c *countScheduler) runExclusive(count func() error) error {
	select {
	case c.running <- struct{}{}:
	default:
		return errCounting
	}
	defer func() { <-c.running }()
	return count()
}

// waitIdle waits until no count is running.
func (c *countScheduler) waitIdle(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		<-c.running
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CountSegment returns how many contacts are in a segment. Small segments are counted immediately. For a large segment,
// or a filter that takes too long, CountSegment returns the last count, or the zero Count if the segment has never been
// counted. If that count is more than a minute old, [Service.Run] renews it later. CountSegment returns an Invalid
// fault if the filter names a deleted object.
func (s *Service) CountSegment(ctx context.Context, g segments.Segment) (segments.Count, error) {
	of, err := s.contactsOf(ctx, s.DB.Reader, g)
	if err != nil {
		return segments.Count{}, err
	}
	n, err := countUpTo(ctx, s.DB.Reader, g.TeamID, of.segmentID, s.counts.directLimit+1)
	if err != nil {
		return segments.Count{}, err
	}
	switch {
	case n <= s.counts.directLimit && of.rule == nil:
		c := segments.Count{At: s.DB.Now()}
		c.Contacts, err = countContacts(ctx, s.DB.Reader, &of)
		return c, err
	case n <= s.counts.directLimit:
		c, err := s.count(ctx, &of, s.long(g.TeamID))
		if !errors.Is(err, db.ErrTooLong) && !errors.Is(err, db.ErrCrowded) {
			return c, err
		}
	}
	kept, err := segments.LastCount(ctx, s.DB.Reader, g.TeamID, g.ID)
	if err != nil {
		return segments.Count{}, err
	}
	if now := s.DB.Now(); now.Sub(kept.At) > countAge && !s.slow.contains(of.filterKey, now) {
		s.counts.enqueue(g)
	}
	return kept, nil
}

// Usage is the number of contacts and segments that a team has.
type Usage struct {
	Contacts int // if there are more than 100,000, a count that is at most a minute old (see [Service.Usage])
	Segments int
}

// Usage returns how many contacts and segments a team has. Usage counts up to 100,000 contacts on each request. More
// contacts are counted again if the last count is over a minute old; if that takes too long, Usage returns the last
// count or, without one, 100,001.
func (s *Service) Usage(ctx context.Context, teamID string) (u Usage, err error) {
	if u.Segments, err = s.Segments.Total(ctx, teamID); err != nil {
		return u, err
	}
	if u.Contacts, err = countUpTo(ctx, s.DB.Reader, teamID, "", s.counts.usageLimit+1); err != nil {
		return u, err
	}
	if u.Contacts <= s.counts.usageLimit {
		return u, nil
	}
	all := segments.AllContacts(teamID)
	kept, err := segments.LastCount(ctx, s.DB.Reader, teamID, all.ID)
	if err != nil {
		return u, err
	}
	if s.DB.Now().Sub(kept.At) > countAge {
		of, err := s.contactsOf(ctx, s.DB.Reader, all)
		if err != nil {
			return u, err
		}
		switch c, err := s.count(ctx, &of, s.long(teamID)); {
		case err == nil:
			kept = c
			save := func(tx *db.Tx) error { segments.SaveCount(ctx, tx, all, c); return nil }
			if err := s.DB.Update(db.WithoutAddition(ctx), save); err != nil {
				return u, err
			}
		case !errors.Is(err, db.ErrTooLong) && !errors.Is(err, db.ErrCrowded):
			return u, err
		}
	}
	if !kept.At.IsZero() {
		u.Contacts = kept.Contacts
	}
	return u, nil
}

// count counts a source's contacts in a long read.
func (s *Service) count(ctx context.Context, of *source, l db.Long) (c segments.Count, err error) {
	c.At = s.DB.Now()
	err = s.DB.ReadLong(ctx, l, func(ctx context.Context, r db.Reader) (err error) {
		c.Contacts, err = countContacts(ctx, r, of)
		return err
	})
	if err != nil {
		return segments.Count{}, err
	}
	return c, nil
}

// recount counts a segment and saves the count.
func (s *Service) recount(ctx context.Context, teamID, segmentID string) error {
	g, err := s.Segments.Get(ctx, teamID, segmentID)
	if err != nil {
		return err
	}
	of, err := s.contactsOf(ctx, s.DB.Reader, g)
	if err != nil || s.slow.contains(of.filterKey, s.DB.Now()) {
		return err
	}
	c, err := s.countExclusive(ctx, &of, db.Long{Owner: teamID, Wait: s.limits.backgroundWait, Time: s.limits.count})
	if errors.Is(err, db.ErrTooLong) && of.filterKey != "" {
		s.markSlow(&of)
		return nil
	}
	if err != nil {
		return err
	}
	s.slow.remove(of.filterKey)
	return s.DB.Update(ctx, func(tx *db.Tx) error { segments.SaveCount(ctx, tx, g, c); return nil })
}

// countExclusive is like count, but waits until no other exclusive count is running. While countExclusive waits, it
// holds no read slot.
func (s *Service) countExclusive(ctx context.Context, of *source, l db.Long) (c segments.Count, err error) {
	for {
		if err := s.counts.waitIdle(ctx); err != nil {
			return c, err
		}
		err := s.DB.ReadLong(ctx, l, func(ctx context.Context, r db.Reader) error {
			return s.counts.runExclusive(func() (err error) {
				c.At = s.DB.Now()
				c.Contacts, err = countContacts(ctx, r, of)
				return err
			})
		})
		if !errors.Is(err, errCounting) {
			return c, err
		}
	}
}

// Run counts the contacts of each queued segment until ctx is done.
func (s *Service) Run(ctx context.Context) error {
	var teams errgroup.Group
	teams.SetLimit(countTeams)
	for ctx.Err() == nil {
		if teamID, segmentID := s.counts.next(); segmentID != "" {
			teams.Go(func() error {
				s.renewCount(ctx, teamID, segmentID)
				return nil
			})
			continue
		}
		select {
		case <-ctx.Done():
		case <-s.counts.wake:
		}
	}
	return teams.Wait()
}

// renewCount counts a segment that [countScheduler.next] returned, and then calls done.
func (s *Service) renewCount(ctx context.Context, teamID, segmentID string) {
	defer s.counts.done(teamID)
	err := s.recount(ctx, teamID, segmentID)
	// After the segment was queued, the segment or an object that its filter names may have been deleted.
	if kind := fault.KindOf(err); err != nil && ctx.Err() == nil && kind != fault.NotFound && kind != fault.Invalid {
		s.Log.Warn("count the contacts of a segment", "team", teamID, "segment", segmentID, "error", err)
	}
}
