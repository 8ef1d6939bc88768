// Package quotas counts the emails that teams send and receive, and enforces a quota per day and per month, in UTC. A
// sent email counts once for each recipient, and a received email counts once.
//
// # Invariants
//
// Sent emails are counted in the transaction that accepts them. As a result, the counts always match the emails, and no
// team exceeds its quota, even if several nodes accept its emails. Received emails count toward the quota but are never
// refused.
//
// Each team's counter is split into shards. Each shard has an allowance, and the allowances together never exceed the
// quota. A transaction counts in the shard of its database connection and uses no other shard while that shard's
// allowance lasts. When an allowance is used up, and once at the start of each day, a transaction locks all shards,
// adds them up, and redistributes the remaining quota. The allowances run out one email before usage reaches 80 % of
// the quota, and again one email before 100 %. The email that reaches 80 % or 100 % is therefore counted by a
// transaction that adds up the shards and enqueues the notice to the owner. When little of the quota remains, all
// allowances are zero and each transaction adds up the shards.
//
// Shards are locked in ascending order by number. A transaction that does not add up the shards locks only the shard of
// its connection, under an advisory lock that all teams share. To prevent deadlocks, a transaction counts before it
// writes rows that other transactions also write, and counts for several teams in the order of their ids.
//
// # Failures
//
// A hint notifies other nodes when a team gets its first quota. If the hint is lost, a node notices the quota within
// [cacheFor]. Emails that the node accepts before it notices the quota are not counted. A change to an existing quota
// takes effect when it is committed.
//
// # Out of scope
//
// Package quotas does not limit requests per second; [teams.Limiter] does. Notices are sent by the Notify dependency.
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
	cacheFor = 5 * time.Second // how long a node may take to notice a team's first quota if the hint is lost
	cacheMax = 10_000          // teams
	// If a shard's allowance is below tightBelow, the team's transactions no longer share a commit with other
	// transactions. If one transaction in a shared commit finds no allowance left, all transactions in that commit are
	// run again.
	tightBelow = 32
	// unlimited is the allowance in a period without a limit.
	unlimited = int64(1) << 60
)

// Deps are the dependencies of a Service.
type Deps struct {
	DB *db.DB
	// Notify enqueues an email to a team's owner in tx.
	Notify func(ctx context.Context, tx *db.Tx, teamID, subject, text string) error
	// CountedBetween returns how many emails a team sent and received between two times. CountedBetween is called when
	// a team gets its first quota, because emails from earlier in the current day and month count toward that quota.
	CountedBetween func(ctx context.Context, teamID string, from, to time.Time) (int64, error)
	// Now returns the time that determines the current day and month. If Now is nil, the database clock is used. Tests
	// set Now so that the day does not change during a test.
	Now func() time.Time `deps:"optional"`
}

// Service counts emails and enforces quotas.
type Service struct {
	Deps

	mu    sync.Mutex
	cache map[string]cachedQuota
	epoch int             // incremented by forget; results that were read before the last increment are not cached
	tight map[string]bool // teams with a small allowance
}

type cachedQuota struct {
	limited bool
	until   time.Time
}

// New returns a Service, or an error if a dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	s := &Service{Deps: d}
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

// at returns the result of Now if Now is set; otherwise it returns the given database time.
func (s *Service) at(now time.Time) time.Time {
	if s.Now != nil {
		return s.Now()
	}
	return now
}

// limited reports whether a team has a quota. The result may be cached for up to cacheFor.
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

// errShardFull means that the shard used by the transaction has no allowance left.
var errShardFull = errors.New("the shard of the quota has no allowance left")

// Update counts n emails and runs fn in the same transaction, which may share its commit with others (see
// [db.DB.UpdateTogether]). If the emails would exceed a quota, Update returns a DailyQuota or MonthlyQuota fault, and
// fn has no effect.
func (s *Service) Update(ctx context.Context, teamID string, n int, fn func(*db.Tx) error) error {
	limited, err := s.limited(ctx, s.DB.Reader, teamID)
	if err != nil {
		return err
	}
	if !limited || n == 0 {
		return s.DB.UpdateTogether(ctx, db.Accepting, fn)
	}
	if !s.isTight(teamID) {
		err := s.DB.UpdateTogether(ctx, db.Accepting, func(tx *db.Tx) error {
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

// UpdateAlone is like Update, but uses a transaction that does not share its commit. Callers use UpdateAlone for
// transactions that lock rows that other transactions wait for.
func (s *Service) UpdateAlone(ctx context.Context, teamID string, n int, fn func(*db.Tx) error) error {
	var refused bool
	err := s.DB.Update(ctx, func(tx *db.Tx) error {
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

// Check returns the fault of Update if n emails would exceed a quota now, and notifies the team like Update. Check counts
// nothing, so that callers can avoid work whose result Update would refuse.
func (s *Service) Check(ctx context.Context, teamID string, n int) error {
	u, err := s.Usage(ctx, teamID)
	switch {
	case err != nil:
		return err
	case u.day.exceededBy(int64(n)):
		return s.Refused(ctx, teamID, n, exceeded(fault.DailyQuota, &u.day, int64(n)))
	case u.month.exceededBy(int64(n)):
		return s.Refused(ctx, teamID, n, exceeded(fault.MonthlyQuota, &u.month, int64(n)))
	}
	return nil
}

// Refused enqueues, in its own transaction, a notice that n emails were refused, unless the team has already received
// that notice. If the notice was enqueued or not needed, Refused returns the refusal, which is the fault from the
// refused transaction.
func (s *Service) Refused(ctx context.Context, teamID string, n int, refusal error) error {
	u, err := s.Usage(ctx, teamID)
	if err == nil && !u.needsNotice(n) {
		return refusal
	}
	if err == nil {
		// The audit log must not attribute the transaction that enqueues the notice to the refused request.
		ctx := audit.Without(ctx)
		err = s.DB.Update(ctx, func(tx *db.Tx) error {
			day, month, err := s.lock(ctx, tx, teamID)
			if err != nil || day.limit == 0 && month.limit == 0 {
				return err
			}
			return s.redistribute(ctx, tx, teamID, &day, &month, int64(n))
		})
	}
	if err != nil {
		return fmt.Errorf("notify a team that its quota is used up: %w", err)
	}
	return refusal
}

// Exceeded reports whether an error is the fault for an exceeded quota.
func Exceeded(err error) bool {
	k := fault.KindOf(err)
	return err != nil && (k == fault.DailyQuota || k == fault.MonthlyQuota)
}

// Count counts n emails for a team in a transaction. If these emails would exceed a quota, Count counts nothing and
// returns a DailyQuota or MonthlyQuota fault; the transaction can still be committed.
func (s *Service) Count(ctx context.Context, tx *db.Tx, teamID string, n int) error {
	return s.count(ctx, tx, teamID, int64(n), false)
}

// CountReceived counts n emails that a team has received, in a transaction, even if they exceed a quota.
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
