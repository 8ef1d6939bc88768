// Package volume keeps the quotas of teams: how many emails a team may send and receive in a day and in a month of UTC.
// An email counts once for each address that it goes to, and a received one once.
//
// # Invariants
//
// What is sent is counted in the transaction that accepts it, so that a count is neither lost nor made for what was
// not accepted, and the sum of what is sent never exceeds the quota, whichever nodes accept it. Received mail counts
// too, but is never refused.
//
// The count of a team is in parts, of which each has room for some of the quota; the rooms of all parts together are
// within it. A transaction counts in the part of its connection and looks at no other while there is room. When there
// is none, it locks all parts, adds them up, and divides what is left again; so does the first of a day. The rooms end
// one short of 80 % and of 100 % of a quota, so that the email that reaches these is seen by a transaction that knows
// the sum, which also enters the notice. When little is left, all parts have no room and each transaction adds up.
//
// Parts are locked in the order of their numbers, and a transaction that counts without adding up holds no part but
// that of its connection, under a lock that all teams share. A transaction counts before it writes what others write too,
// and of several teams in the order of their ids: two transactions do not wait for each other in a circle.
//
// # When it fails
//
// A node learns of a team's first quota by a hint, and without it after at most [cacheFor]; what it accepts before is
// not counted. A change of a quota that the team has already holds from its commit on.
//
// # What it does not do
//
// It does not limit requests a second; that is [teams.Limiter]. It sends no notices itself.
package quotas

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
)

const (
	cacheFor = 5 * time.Second // the longest that a team's first quota goes unnoticed if its hint is lost
	cacheMax = 10_000          // teams
	// tightBelow is the room of a part below which emails of a team are no longer accepted together with those of
	// others: when one finds no room, all of them run again.
	tightBelow = 32
	// unlimited is the room of a period without a limit.
	unlimited = int64(1) << 60
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB *db.DB
	// Notify enqueues an email to a team's owner in tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// CountedBetween returns how many emails a team sent and received between two times. When a team gets its first
	// quota, the emails of the current day and month count.
	CountedBetween func(ctx context.Context, teamID string, from, to time.Time) (int64, error)
	// Now returns the time that decides which day and month it is; nil uses the clock of the database. Tests set it, so
	// that no day ends while they count.
	Now func() time.Time `deps:"optional"`
}

// Service keeps the quotas of teams.
type Service struct {
	Deps
	d *db.DB

	mu    sync.Mutex
	cache map[string]cachedQuota
	epoch int             // incremented by forget; what was read in an older epoch is not kept
	tight map[string]bool // teams with little room
}

type cachedQuota struct {
	limited bool
	until   time.Time
}

// New returns the service. It fails if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d, d: d.DB}
	s.forget()
	d.DB.OnHint(teams.HintTopic, func(string) { s.forget() })
	return s, nil
}

func (s *Service) forget() {
	s.mu.Lock()
	s.cache, s.tight = map[string]cachedQuota{}, map[string]bool{}
	s.epoch++
	s.mu.Unlock()
}

// at is the time that counts at a time of the database.
func (s *Service) at(now time.Time) time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return now
}

// limited reports whether a team has a quota, as far as this node knows.
func (s *Service) limited(ctx context.Context, r db.Reader, teamID string) (bool, error) {
	now := time.Now()
	s.mu.Lock()
	k, ok := s.cache[teamID]
	epoch := s.epoch
	s.mu.Unlock()
	if ok && now.Before(k.until) {
		return k.limited, nil
	}
	q, err := getQuota(ctx, r, teamID)
	if err != nil {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if epoch == s.epoch {
		if len(s.cache) >= cacheMax {
			clear(s.cache)
		}
		s.cache[teamID] = cachedQuota{q != teams.Quota{}, now.Add(cacheFor)}
	}
	return q != teams.Quota{}, nil
}

func (s *Service) isTight(teamID string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tight[teamID]
}

func (s *Service) setTight(teamID string, tight bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !tight {
		delete(s.tight, teamID)
		return
	}
	if len(s.tight) >= cacheMax {
		clear(s.tight)
	}
	s.tight[teamID] = true
}

// errShardFull is the error of a transaction whose part has no room.
var errShardFull = errors.New("the part of the quota has no room")

// Update runs fn in a transaction that accepts n emails, and may share it as [db.DB.UpdateTogether] says. Beyond a
// quota it returns a fault of the kind DailyQuota or MonthlyQuota, and fn has had no effect.
func (s *Service) Update(ctx context.Context, teamID string, n int, fn func(*db.Tx) error) error {
	limited, err := s.limited(ctx, s.d.Reader, teamID)
	if err != nil {
		return err
	}
	if !limited || n == 0 {
		return s.d.UpdateTogether(ctx, db.Accepting, fn)
	}
	if !s.isTight(teamID) {
		err := s.d.UpdateTogether(ctx, db.Accepting, func(tx *db.Tx) error {
			s.queueCount(ctx, tx, teamID, n)
			return fn(tx)
		})
		if !errors.Is(err, errShardFull) {
			return err
		}
		s.setTight(teamID, true)
	}
	return s.UpdateAlone(ctx, teamID, n, fn)
}

// UpdateAlone is Update in a transaction that no other shares, for one that locks what others wait for.
func (s *Service) UpdateAlone(ctx context.Context, teamID string, n int, fn func(*db.Tx) error) error {
	var refused bool
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		refused = false
		if err := s.Count(ctx, tx, teamID, n); err != nil {
			refused = Exceeded(err)
			return err
		}
		return fn(tx)
	})
	if err == nil || !refused {
		return err
	}
	return s.Refused(ctx, teamID, n, err)
}

// Refused returns the fault of n emails that were refused in a transaction that had no effect, once the team has been
// told in another one.
func (s *Service) Refused(ctx context.Context, teamID string, n int, refusal error) error {
	u, err := s.Usage(ctx, teamID)
	if err == nil && !u.needsNotice(n) {
		return refusal
	}
	if err == nil {
		// The audit log must not take this for what was asked for and refused.
		ctx := audit.Without(ctx)
		err = s.d.Update(ctx, func(tx *db.Tx) error {
			day, month, err := s.lock(ctx, tx, teamID)
			if err != nil || day.limit == 0 && month.limit == 0 {
				return err
			}
			return s.redistribute(ctx, tx, teamID, &day, &month, int64(n))
		})
	}
	if err != nil {
		return fmt.Errorf("tell a team that its quota is used up: %w", err)
	}
	return refusal
}

// Exceeded reports whether an error says that a quota is used up.
func Exceeded(err error) bool {
	k := fault.KindOf(err)
	return err != nil && (k == fault.DailyQuota || k == fault.MonthlyQuota)
}

// Count counts n emails of a team in a transaction. Beyond a quota it counts nothing and returns a fault of the kind
// DailyQuota or MonthlyQuota; the transaction may go on.
func (s *Service) Count(ctx context.Context, tx *db.Tx, teamID string, n int) error {
	return s.count(ctx, tx, teamID, int64(n), false)
}

// CountReceived counts n received emails of a team in a transaction, also beyond a quota.
func (s *Service) CountReceived(ctx context.Context, tx *db.Tx, teamID string, n int) error {
	return s.count(ctx, tx, teamID, int64(n), true)
}

func (s *Service) count(ctx context.Context, tx *db.Tx, teamID string, n int64, anyway bool) error {
	if n == 0 {
		return nil
	}
	limited, err := s.limited(ctx, tx.Reader, teamID)
	if err != nil || !limited {
		return err
	}
	ok, err := s.countInShard(ctx, tx, teamID, n)
	if err != nil || ok {
		return err
	}
	return s.countLocked(ctx, tx, teamID, n, anyway)
}
