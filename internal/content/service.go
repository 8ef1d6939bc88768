package content

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
)

// Bounds of what is kept in memory of compiled contents.
const (
	cacheCount  = 10_000
	cacheOctets = 64 << 20
)

// usedEvery is how far used_at may be behind, and usedSlack how long after used_at a content may be in use for certain.
const (
	usedEvery = time.Hour
	usedSlack = 2 * time.Hour
)

// Service adds and returns contents.
type Service struct {
	d *db.DB

	mu     sync.Mutex
	cached *simplelru.LRU[string, *Compiled]
	octets int64
}

// New returns the service that keeps its contents in d.
func New(d *db.DB) *Service {
	s := &Service{d: d}
	s.cached, _ = simplelru.NewLRU(cacheCount, func(_ string, c *Compiled) { s.octets -= c.weight() }) // fails for sizes below 1
	return s
}

// Add enters a content in the caller's transaction, and sets its ID and CreatedAt.
func (s *Service) Add(ctx context.Context, tx *db.Tx, c *Content) error {
	if c.ID == "" {
		c.ID = id.At(tx.Now())
	}
	c.CreatedAt = tx.Now()
	return insert(ctx, tx, c)
}

// Get returns a content of a team, compiled. It is a NotFound fault when there is none.
func (s *Service) Get(ctx context.Context, teamID, contentID string) (*Compiled, error) {
	s.mu.Lock()
	c, ok := s.cached.Get(contentID)
	s.mu.Unlock()
	if ok {
		if c.TeamID != teamID {
			return nil, notFound()
		}
		return c, nil
	}
	read, used, err := get(ctx, s.d.Reader, teamID, contentID)
	if err != nil {
		return nil, err
	}
	c = Compile(&read)
	c.used.at.Store(used)
	s.remember(c)
	return c, nil
}

func notFound() error { return fault.NotFoundf("Content not found") }

// remember keeps a compiled content, and forgets those that were not used for the longest time.
func (s *Service) remember(c *Compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached.Contains(c.ID) || c.weight() > cacheOctets {
		return
	}
	s.cached.Add(c.ID, c)
	for s.octets += c.weight(); s.octets > cacheOctets; {
		s.cached.RemoveOldest()
	}
}

// weight estimates the memory that a compiled content takes.
func (c *Compiled) weight() int64 { return c.size + int64(len(c.made)) + 2048 }

// usedAt is when a content was used last, as its row has it, in microseconds.
type usedAt struct{ at atomic.Int64 }

// Use notes in the caller's transaction that an email of the content is entered, so that it is not deleted. The
// transaction fails with a NotFound fault when it is gone already.
func (s *Service) Use(ctx context.Context, tx *db.Tx, c *Compiled) {
	now := tx.Now().UnixMicro()
	if now-c.used.at.Load() < usedEvery.Microseconds() {
		return
	}
	setUsed(ctx, tx, c.TeamID, c.ID, now)
	tx.AfterCommit(func() { c.used.at.Store(now) })
}

// Release takes back that a content is kept: it is deleted after the last email of it. It is no error when there is none.
func (s *Service) Release(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	release(ctx, tx, teamID, contentID)
}

// RemoveUnused deletes some contents of a team that nobody keeps and that no email can refer to: those used last before
// the oldest email of the team that may still have its content was accepted. The zero time says that there is no such
// email. It returns how many it deleted; there may be more when it is not 0.
func (s *Service) RemoveUnused(ctx context.Context, teamID string, oldest time.Time) (n int64, err error) {
	err = s.d.Update(ctx, func(tx *db.Tx) (err error) {
		before := tx.Now()
		if !oldest.IsZero() && oldest.Before(before) {
			before = oldest
		}
		n, err = removeUnused(ctx, tx, teamID, before.Add(-usedSlack))
		return err
	})
	return n, err
}

// TeamsWithUnused returns some teams behind an id, in order, that have contents which nobody keeps and which were not used
// of late.
func (s *Service) TeamsWithUnused(ctx context.Context, after string) ([]string, error) {
	return teamsWithUnused(ctx, s.d.Reader, after, s.d.Now().Add(-usedSlack))
}

// EraseTeam takes away the contents of a team. Its emails go first.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseSome(ctx, tx, teamID) })
}
