package content

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/mail/message"
)

// Limits of the cache of compiled contents.
const (
	cacheCount  = 10_000
	cacheOctets = 64 << 20

	perPlaceholder = 80 // octets
	perName        = 100
	perLink        = 80 // besides its target
)

// usedEvery is how far used_at may lag behind the last use. usedSlack is how long after used_at a content is not
// deleted; it is longer, to be safe.
const (
	usedEvery = time.Hour
	usedSlack = 2 * time.Hour
)

// Service stores and returns contents.
type Service struct {
	d *db.DB

	mu     sync.Mutex
	cached *simplelru.LRU[string, *Compiled]
	octets int64
}

// New returns a service that stores its contents in d.
func New(d *db.DB) *Service {
	s := &Service{d: d}
	// fails for sizes below 1
	s.cached, _ = simplelru.NewLRU(cacheCount, func(_ string, c *Compiled) { s.octets -= c.weight() })
	return s
}

// Add inserts a content in the caller's transaction, and sets its CreatedAt, and its ID if it is empty.
func (s *Service) Add(ctx context.Context, tx *db.Tx, c *Content) error {
	if c.ID == "" {
		c.ID = id.At(tx.Now())
	}
	c.CreatedAt = tx.Now()
	// Each email has a Message-ID of its own.
	c.Headers = slices.DeleteFunc(slices.Clone(c.Headers), func(f message.Field) bool {
		return strings.EqualFold(f.Name, "Message-ID")
	})
	return insert(ctx, tx, c)
}

// Get returns a team's content, compiled. The error is a NotFound fault when there is none.
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

// remember caches a compiled content, and evicts the least recently used ones.
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

// weight estimates the memory of a compiled content, in octets.
func (c *Compiled) weight() int64 {
	n := c.size + int64(len(c.made)) + perPlaceholder*int64(c.placeholders) + perName*int64(len(c.names)) + 2048
	if c.html != nil {
		n += perLink*int64(c.html.Links()) + int64(c.html.TargetOctets())
	}
	return n
}

// usedAt is when a content was last used, as stored in its row, in microseconds.
type usedAt struct{ at atomic.Int64 }

// Use records in the caller's transaction that an email with the content is inserted, so that the content is not
// deleted. It writes at most once an hour for each content; when it writes and the content is gone, the transaction
// fails with a NotFound fault.
func (s *Service) Use(ctx context.Context, tx *db.Tx, c Ref) {
	now := tx.Now().UnixMicro()
	if now-c.used.at.Load() < usedEvery.Microseconds() {
		return
	}
	setUsed(ctx, tx, c.TeamID, c.ID, now)
	tx.AfterCommit(func() { c.used.at.Store(now) })
}

// Delete deletes a content that no email was ever sent with. It is no error if there is none.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	remove(ctx, tx, teamID, contentID)
}

// Release clears Kept: the content is deleted by RemoveUnused once it is older than all emails of the team that have
// any content. It is no error if there is none.
func (s *Service) Release(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	release(ctx, tx, teamID, contentID)
}

// RemoveUnused deletes some contents of a team that are not kept and that no email can refer to: those that were last
// used before oldest, the time at which the oldest email of the team that may still have its content was accepted. A
// zero time means that there is no such email. It returns how many it deleted; if that is not 0, there may be more.
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

// TeamsWithUnused returns some teams with ids after the given one, in order, that have contents which are not kept
// and were not used recently.
func (s *Service) TeamsWithUnused(ctx context.Context, after string) ([]string, error) {
	return teamsWithUnused(ctx, s.d.Reader, after, s.d.Now().Add(-usedSlack))
}

// EraseTeam deletes the contents of a team. Its emails must be deleted first.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseSome(ctx, tx, teamID) })
}
