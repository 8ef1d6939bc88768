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

// Limits on the cache of compiled Contents.
const (
	cacheCount = 10_000
	cacheBytes = 64 << 20

	perPlaceholder = 80 // bytes
	perName        = 100
	perLink        = 80 // estimated bytes per link, in addition to its target
)

// usedEvery is the interval at which a process records the use of a Content. The safety margin usedSlack is longer than
// usedEvery. A Content is kept for at least usedSlack after a recorded use, and the search for its emails extends by
// usedSlack before and after each use.
const (
	usedEvery = time.Hour
	usedSlack = 2 * time.Hour
)

// Service stores, caches and returns Contents.
type Service struct {
	d *db.DB

	mu          sync.Mutex
	cached      *simplelru.LRU[string, *Compiled]
	cachedBytes int64
}

// New returns a service that stores Contents in the database d.
func New(d *db.DB) *Service {
	s := &Service{d: d}
	// NewLRU returns an error only for sizes below 1.
	s.cached, _ = simplelru.NewLRU(cacheCount, func(_ string, c *Compiled) { s.cachedBytes -= c.weight() })
	return s
}

// Add inserts a Content in the caller's transaction. Add sets CreatedAt, and also ID if it is empty.
func (s *Service) Add(ctx context.Context, tx *db.Tx, c *Content) error {
	if c.ID == "" {
		c.ID = id.At(tx.Now())
	}
	c.CreatedAt = tx.Now()
	// Remove Message-ID, because each email needs its own.
	c.Headers = slices.DeleteFunc(slices.Clone(c.Headers), func(f message.Field) bool {
		return strings.EqualFold(f.Name, "Message-ID")
	})
	return insert(ctx, tx, c)
}

// CopyWithSender adds a copy of a Content that differs only in its From, and returns the id of the copy. Emails of the
// Content may refer to the copy from then on. If the Content does not exist, CopyWithSender returns a NotFound fault.
func (s *Service) CopyWithSender(ctx context.Context, tx *db.Tx, teamID, contentID, from string) (string, error) {
	copyID := id.At(tx.Now())
	return copyID, insertCopy(ctx, tx, teamID, contentID, copyID, from)
}

// Get returns a team's Content in compiled form. If the Content does not exist, Get returns a NotFound fault.
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

// addToCache caches a compiled Content and evicts the least recently used ones.
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

// weight estimates the size of a compiled Content in memory, in bytes.
func (c *Compiled) weight() int64 {
	n := c.size + int64(len(c.convertedText)) + perPlaceholder*int64(c.placeholders) + perName*int64(len(c.names)) + 2048
	if c.html != nil {
		n += perLink*int64(c.html.Links()) + int64(c.html.TargetBytes())
	}
	return n
}

// evict removes Contents from the cache.
func (s *Service) evict(contentIDs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, contentID := range contentIDs {
		s.cached.Remove(contentID)
	}
}

// recordedUse is a use of a Content that this process recorded in the database row.
type recordedUse struct {
	at    time.Time // time of the use by the database's clock
	since time.Time // time of the recording by this process's monotonic clock
}

// covers reports whether the recorded use u is recent enough for an email that is inserted now, so that no new record
// is needed.
func (u *recordedUse) covers(now time.Time) bool {
	// The second condition handles a clock that was set back: RemoveUnused on another node may already have searched
	// past the recorded use.
	return u != nil && now.Sub(u.at).Abs() < usedEvery && time.Since(u.since) < usedEvery
}

// MarkUsed records in the caller's transaction that an email with the Content is inserted, so that the Content is not
// deleted. A process writes the record at most once an hour per Content. If MarkUsed writes the record and the Content
// has been deleted, the transaction fails with a NotFound fault.
func (s *Service) MarkUsed(ctx context.Context, tx *db.Tx, c Ref) {
	if now := tx.Now(); !c.lastUse.Load().covers(now) {
		setUsed(ctx, tx, c.TeamID, c.ID, now)
		noted := &recordedUse{at: now, since: time.Now()}
		tx.AfterCommit(func() { c.lastUse.Store(noted) })
	}
}

// Delete deletes a Content to which no email has ever referred. Deleting a missing Content is not an error.
func (s *Service) Delete(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	remove(ctx, tx, teamID, contentID)
}

// Release clears Kept, so that the Content is deleted once no email refers to it. Releasing a missing Content is not an
// error.
func (s *Service) Release(ctx context.Context, tx *db.Tx, teamID, contentID string) {
	release(ctx, tx, teamID, contentID)
}

// Unused is a Content that is not kept and was not used recently. The emails that refer to the Content, if any, have
// ids greater than or equal to From and less than Until.
type Unused struct {
	TeamID, ID string
	From       string

	used int64 // time of the last recorded use, in microseconds since 1970
}

// Until returns an id that is greater than the ids of all emails that refer to the Content.
func (u *Unused) Until() string { return id.First(db.Time(u.used).Add(usedSlack)) }

// Unused returns a batch of a team's Contents that are not kept and were not used recently, sorted by the time of their
// last use. The list continues after the Content in the parameter after. If the parameter after is the zero value, the
// list starts with the first Content.
func (s *Service) Unused(ctx context.Context, teamID string, after Unused) ([]Unused, error) {
	return unused(ctx, s.d.Reader, teamID, s.d.Now().Add(-usedSlack), after)
}

// AdvanceFrom records that no email with an id less than from refers to the Content. If the Content has been used since
// the caller read u, AdvanceFrom does nothing.
func (s *Service) AdvanceFrom(ctx context.Context, u Unused, from string) error {
	return s.d.Update(ctx, func(tx *db.Tx) error { return advanceFrom(ctx, tx, u, from) })
}

// RemoveUnused deletes Contents to which no email refers. RemoveUnused keeps each Content that has been used since it
// was read.
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

// TeamsWithUnused looks at a batch of teams whose short ids are greater than after and at most last. It returns those
// that have a Content that is neither kept nor recently used, and the last short id of the batch, or 0 if the batch has
// no teams.
func (s *Service) TeamsWithUnused(ctx context.Context, after, last int64) (teamIDs []string, upTo int64, err error) {
	return teamsWithUnused(ctx, s.d.Reader, after, last, s.d.Now().Add(-usedSlack))
}

// EraseTeam deletes all Contents of a team. Callers of EraseTeam must delete the team's emails first.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	return s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return eraseSome(ctx, tx, teamID) })
}
