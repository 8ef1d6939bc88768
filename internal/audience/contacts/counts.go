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

// Limits of counting. A count reads the whole segment; for a segment with a filter it reads the contacts that each rule
// selects.
const (
	countAtOnce = 10_000      // segments of up to this many contacts are counted on each request
	countAge    = time.Minute // age at which a request causes a new count of a larger segment
	countQueue  = 50          // waiting segments of one team; further ones must be requested again
	countTeams  = 100         // teams that wait for a read slot at the same time, each with one segment
)

// countScheduler queues the segments whose counts Run renews. Teams take turns, one segment at a time.
//
// A count waits for a read slot, and its team may have many other reads. Several teams therefore wait at the same time,
// so that none is delayed by another team's reads. Only one count runs at a time, because long counts must not take all
// slots.
type countScheduler struct {
	directLimit int
	running     chan struct{} // holds an element while a count runs

	mu      sync.Mutex
	waiting map[string][]string // by team; never an empty list
	order   []string            // teams in waiting that are not in active; the next one first
	active  map[string]string   // by team: the segment that is being counted
	wake    chan struct{}       // holds an element if order may not be empty
}

func newCountScheduler() *countScheduler {
	return &countScheduler{directLimit: countAtOnce, running: make(chan struct{}, 1), waiting: map[string][]string{},
		active: map[string]string{}, wake: make(chan struct{}, 1)}
}

// enqueue schedules a new count of a segment, unless one is scheduled or the team's queue is full.
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

// appendTurn puts a team at the end of the order.
func (c *countScheduler) appendTurn(teamID string) {
	c.order = append(c.order, teamID)
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// next returns a segment to count, or "" if none waits. The caller must call done after the count.
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

// done lets a team take its next turn.
func (c *countScheduler) done(teamID string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.active, teamID)
	if len(c.waiting[teamID]) > 0 {
		c.appendTurn(teamID)
	}
}

// errCounting is returned when another count runs.
var errCounting = errors.New("another count runs")

// runExclusive calls count, or returns errCounting if another count runs.
func (c *countScheduler) runExclusive(count func() error) error {
	select {
	case c.running <- struct{}{}:
	default:
		return errCounting
	}
	defer func() { <-c.running }()
	return count()
}

// waitIdle waits until no count runs.
func (c *countScheduler) waitIdle(ctx context.Context) error {
	select {
	case c.running <- struct{}{}:
		<-c.running
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CountSegment returns how many contacts a segment has. Small segments are counted at once. For a large segment, or one
// whose filter takes too long, it returns the last count: the zero Count if there is none yet. A count older than a
// minute is then renewed by [Service.Run]. A filter that names a deleted object is an Invalid fault.
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

// Usage is how many contacts and segments a team has.
type Usage struct {
	Contacts int // from the last count; before the first one, 10,001
	Segments int
}

// Usage returns how many contacts and segments a team has.
func (s *Service) Usage(ctx context.Context, teamID string) (u Usage, err error) {
	if u.Segments, err = s.Segments.Total(ctx, teamID); err != nil {
		return u, err
	}
	c, err := s.CountSegment(ctx, segments.AllContacts(teamID))
	if u.Contacts = c.Contacts; c.At.IsZero() {
		u.Contacts = s.counts.directLimit + 1
	}
	return u, err
}

// count counts the contacts of a source.
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
	g := segments.AllContacts(teamID)
	var err error
	if segmentID != teamID {
		if g, err = s.Segments.Get(ctx, teamID, segmentID); err != nil {
			return err
		}
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

// countExclusive is count while no other exclusive count runs. It holds no read slot while it waits for the other
// count.
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

// Run renews the counts of segments until ctx ends.
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

// renewCount renews the count of a segment that [countScheduler.next] returned.
func (s *Service) renewCount(ctx context.Context, teamID, segmentID string) {
	defer s.counts.done(teamID)
	err := s.recount(ctx, teamID, segmentID)
	// The segment, or an object that its filter names, may have been deleted in the meantime.
	if kind := fault.KindOf(err); err != nil && ctx.Err() == nil && kind != fault.NotFound && kind != fault.Invalid {
		s.Log.Warn("count the contacts of a segment", "team", teamID, "segment", segmentID, "error", err)
	}
}
