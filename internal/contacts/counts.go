package contacts

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
)

// Limits of counting. A count reads the whole segment or, for one with a filter, all contacts of the team, which takes
// a second for some millions.
const (
	countAtOnce = 10_000      // contacts that are counted whenever somebody asks
	countAge    = time.Minute // after which the count of a larger segment is renewed when somebody asks
	countQueue  = 1000        // segments that wait for it; others are renewed when somebody asks again
)

// Count is how many contacts a segment had at a time. The zero Count is none yet.
type Count struct {
	Contacts int
	At       time.Time
}

// counting is the segments whose counts Run is to renew.
type counting struct {
	atOnce  int
	mu      sync.Mutex
	waiting map[string]bool // by id, until they are counted
	queue   chan Segment
}

func newCounting() *counting {
	return &counting{atOnce: countAtOnce, waiting: map[string]bool{}, queue: make(chan Segment, countQueue)}
}

// renew has the count of a segment renewed, unless it will be anyway or too many are.
func (c *counting) renew(g Segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting[g.ID] {
		return
	}
	select {
	case c.queue <- g:
		c.waiting[g.ID] = true
	default:
	}
}

func (c *counting) done(g Segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, g.ID)
}

// CountSegment returns how many contacts a segment has. A large one is counted by Run, and the last count is returned
// at once: none before the first, and one that is older than a minute while it is renewed. A filter that names what was
// deleted is an Invalid fault.
func (s *Service) CountSegment(ctx context.Context, g Segment) (Count, error) {
	small, err := s.isSmall(ctx, g)
	if err != nil {
		return Count{}, err
	}
	if small {
		return s.count(ctx, g)
	}
	kept, err := keptCount(ctx, s.d.Reader, g.TeamID, g.ID)
	if err != nil {
		return Count{}, err
	}
	if s.d.Now().Sub(kept.At) > countAge {
		s.counting.renew(g)
	}
	return kept, nil
}

// Usage is how much of what is limited by plans a team has.
type Usage struct {
	Contacts int // at the last count, and one more than are counted at once before the first
	Segments int
}

// Usage returns how much a team has.
func (s *Service) Usage(ctx context.Context, teamID string) (u Usage, err error) {
	if u.Segments, err = countSegments(ctx, s.d.Reader, teamID); err != nil {
		return u, fmt.Errorf("count segments: %w", err)
	}
	c, err := s.CountSegment(ctx, everybody(teamID))
	if u.Contacts = c.Contacts; c.At.IsZero() {
		u.Contacts = s.counting.atOnce + 1
	}
	return u, err
}

// everybody stands for all contacts of a team where segments are counted. Its id is the team's.
func everybody(teamID string) Segment { return Segment{ID: teamID, TeamID: teamID} }

// isEverybody reports whether g is not a segment but all contacts.
func (g *Segment) isEverybody() bool { return g.ID == g.TeamID }

// isSmall reports whether a segment is cheap to count.
func (s *Service) isSmall(ctx context.Context, g Segment) (bool, error) {
	of := g.ID
	if g.Filter != "" || g.isEverybody() {
		of = ""
	}
	n, err := countUpTo(ctx, s.d.Reader, g.TeamID, of, s.counting.atOnce+1)
	return n <= s.counting.atOnce, err
}

func (s *Service) count(ctx context.Context, g Segment) (c Count, err error) {
	c.At = s.d.Now()
	of := allContacts(g.TeamID)
	if !g.isEverybody() {
		if of, err = s.contactsOf(ctx, s.d.Reader, g); err != nil {
			return Count{}, err
		}
	}
	c.Contacts, err = s.countOf(ctx, s.d.Reader, g.TeamID, of)
	return c, err
}

// recount counts a segment and keeps the count.
func (s *Service) recount(ctx context.Context, g Segment) error {
	c, err := s.count(ctx, g)
	if fault.KindOf(err) == fault.Invalid {
		return nil // the filter names what was deleted since
	}
	if err == nil {
		err = s.d.Update(ctx, func(tx *db.Tx) error { keepCount(ctx, tx, g, c); return nil })
	}
	return err
}

// Run renews the counts of segments until ctx ends.
func (s *Service) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case g := <-s.counting.queue:
			err := s.recount(ctx, g)
			s.counting.done(g)
			if err != nil && ctx.Err() == nil {
				s.log().Warn("count the contacts of a segment", "segment", g.ID, "error", err)
			}
		}
	}
}

func (s *Service) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}
