package content

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
)

// Limits of the cache of compiled contents.
const (
	cacheCount = 10_000
	cacheBytes = 64 << 20

	perPlaceholder = 80 // bytes
	perName        = 100
	perLink        = 80 // bytes of a link in addition to its target
)

// usedEvery is how often a process records the use of a content. usedSlack is longer, for safety. A content stays at
// least that long after a recorded use, and its emails are searched that far around the use.
const (
	usedEvery = time.Hour
	usedSlack = 2 * time.Hour
)

// Service stores and returns contents.
type Service struct {
	d *db.DB

	mu          sync.Mutex
	cached      *simplelru.LRU[string, *Compiled]
	cachedBytes int64
}

// New returns a service that stores its contents in d.
func New(d *db.DB) *Service {
	s := &Service{d: d}
	// NewLRU fails only for sizes below 1.
	s.cached, _ = simplelru.NewLRU(cacheCount, func(_ string, c *Compiled) { s.cachedBytes -= c.weight() })
	return s
}

// Add inserts a content in the caller's transaction. It sets CreatedAt, and ID if that is empty.
func (s *Service) Add(ctx context.Context, tx *db.Tx, c *Content) error {
	if c.ID == "" {
		c.ID = id.At(tx.Now())
	}
	c.CreatedAt = tx.Now()
	// Each email has its own Message-ID.
	c.Headers = slices.DeleteFunc(slices.Clone(c.Headers), func(f message.Field) bool {
		return strings.EqualFold(f.Name, "Message-ID")
	})
	return insert(ctx, tx, c)
}

// Get returns a team's content, compiled. The error is a NotFound fault if there is none.
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
	read, err := get(ctx, s.d.Reader, teamID, contentID)
	if err != nil {
		return nil, err
	}
	c = Compile(&read)
	s.addToCache(c)
	return c, nil
}

func notFound() error { return fault.NotFoundf("Content not found") }

// addToCache caches a compiled content and evicts the least recently used ones.
func (s *Service) addToCache(c *Compiled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cached.Contains(c.ID) || c.weight() > cacheBytes {
		return
	}
	s.cached.Add(c.ID, c)
	for s.cachedBytes += c.weight(); s.cachedBytes > cacheBytes; {
		s.cached.RemoveOldest()
	}
}

// weight estimates the memory of a compiled content in bytes.
func (c *Compiled) weight() int64 {
	n := c.size + int64(len(c.convertedText)) + perPlaceholder*int64(c.placeholders) + perName*int64(len(c.names)) + 2048
	if c.html != nil {
		n += perLink*int64(c.html.Links()) + int64(c.html.TargetBytes())
	}
	return n
}

// evict removes contents from the cache.
func (s *Service) evict(contentIDs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, contentID := range contentIDs {
		s.cached.Remove(contentID)
	}
}

// recordedUse is a use of a content that this process recorded in its row.
type recordedUse struct {
	at    time.Time // time by the clock of the database
	since time.Time // time of the record, by this process's monotonic clock
}

// covers reports whether the record u is recent enough for an email that is inserted now, so that no new record is
// needed.
func (u *recordedUse) covers(now time.Time) bool {
	// The second condition is for a clock that was set back: by the true time, RemoveUnused may already have searched
	// past the use.
	return u != nil && now.Sub(u.at).Abs() < usedEvery && time.Since(u.since) < usedEvery
}

// MarkUsed records in the caller's transaction that an email with the content is inserted, so that the content is not
// deleted. A process writes at most once an hour for each content. If it writes and the content is gone, the
// transaction fails with a NotFound fault.
func (s *Service) MarkUsed(ctx context.Context, tx *db.Tx, c Ref) {
	if now := tx.Now(); !c.lastUse.Load().covers(now) {
		setUsed(ctx, tx, c.TeamID, c.ID, now)
		noted := &recordedUse{at: now, since: time.Now()}
		tx.AfterCommit(func() { c.lastUse.Store(noted) })
	}
}

// Delete deletes a content that no email was ever sent with. Deleting a missing content is no error.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	remove(ctx, tx, teamID, contentID)
}

// Release clears Kept: the content is deleted once no email refers to it. Releasing a missing content is no error.
func (s *Service) Release(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	release(ctx, tx, teamID, contentID)
}

// Unused is a content that is not kept and was not used recently. The ids of its emails, if any, are from From to
// before Until.
type Unused struct {
	TeamID, ID string
	From       string

	used int64 // time of the last recorded use, in microseconds
}

// Until returns an id that is greater than those of all emails with the content.
func (u *Unused) Until() string { return id.First(db.Time(u.used).Add(usedSlack)) }

// Unused returns some contents of a team that are not kept and were not used recently, by the time of their last use.
// The list continues after the content that is given as after. If after is the zero value, the list begins with the
// first content.
func (s *Service) Unused(ctx context.Context, teamID string, after Unused) ([]Unused, error) {
	return unused(ctx, s.d.Reader, teamID, s.d.Now().Add(-usedSlack), after)
}

// AdvanceFrom records that the content is used by no email whose id is less than from. It does nothing if the content
// was used since u was read.
func (s *Service) AdvanceFrom(ctx context.Context, u Unused, from string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error { return advanceFrom(ctx, tx, u, from) })
}

// RemoveUnused deletes contents that no email refers to. It keeps the contents that were used since they were read.
func (s *Service) RemoveUnused(ctx context.Context, all []Unused) error {
	for some := range slices.Chunk(all, removeMax) {
		err := s.d.Update(ctx, func(tx *db.Tx) error {
			for _, u := range some {
				removeUnused(ctx, tx, u)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("delete contents that no email has: %w", err)
		}
		var gone []string
		for _, u := range some {
			gone = append(gone, u.ID)
		}
		s.evict(gone)
	}
	return nil
}

// TeamsWithUnused returns some teams with ids after the given one, in order, that have contents that are not kept and
// were not used recently.
func (s *Service) TeamsWithUnused(ctx context.Context, after string) ([]string, error) {
	return teamsWithUnused(ctx, s.d.Reader, after, s.d.Now().Add(-usedSlack))
}

// EraseTeam deletes the contents of a team. The team's emails must be deleted first.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseSome(ctx, tx, teamID) })
}
