package quotas

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Usage is a team's quota and how much of it is used in the current day and month. Usage is zero for a team without a
// quota.
type Usage struct {
	teams.Quota
	Day, Month int64

	day, month period
}

// needsNotice reports whether the team must still be notified that n more emails would exceed its quota.
func (u *Usage) needsNotice(n int) bool {
	return u.day.noticeLevel(int64(n)) > u.day.notified || u.month.noticeLevel(int64(n)) > u.month.notified
}

// Left returns how many emails the team may still send: the smaller of the remaining daily and monthly quotas. The
// result limited is false if the team has no quota.
func (u *Usage) Left() (n int64, limited bool) {
	n = unlimited
	for _, x := range []period{u.day, u.month} {
		if x.limit > 0 {
			n, limited = min(n, max(0, x.limit-x.used)), true
		}
	}
	return n, limited
}

// Usage returns how much of its quota a team has used.
func (s *Service) Usage(ctx context.Context, teamID string) (u Usage, err error) {
	limited, err := s.limited(ctx, s.DB.Reader, teamID)
	if err != nil || !limited {
		return u, err
	}
	if u.Quota, err = getQuota(ctx, s.DB.Reader, teamID); err != nil || u.Quota == (teams.Quota{}) {
		return u, err
	}
	all, err := readShards(ctx, s.DB.Reader, teamID)
	if err != nil {
		return u, fmt.Errorf("read the usage of a team's quota: %w", err)
	}
	u.day, u.month = sumShards(s.at(s.DB.Now()), u.Quota, all)
	u.Day, u.Month = u.day.used, u.month.used
	return u, nil
}

// Resets returns when an exceeded quota resets: the start of the next day or month (UTC) after the given time. The kind
// of the fault says whether the quota is daily or monthly.
func Resets(k fault.Kind, after time.Time) time.Time {
	y, m, d := after.UTC().Date()
	if k == fault.MonthlyQuota {
		return time.Date(y, m+1, 1, 0, 0, 0, 0, time.UTC)
	}
	return time.Date(y, m, d+1, 0, 0, 0, 0, time.UTC)
}

// Set changes a team's quotas. If the team had no quota before, its emails from the current day and month count toward
// the new quota.
func (s *Service) Set(ctx context.Context, t *teams.Service, teamID string, change func(*teams.Quota)) error {
	return s.SetWith(ctx, t, teamID, change, func(*db.Tx) error { return nil })
}

// SetWith is like Set, but also calls the given function in the same transaction.
func (s *Service) SetWith(ctx context.Context, t *teams.Service, teamID string, change func(*teams.Quota),
	also func(tx *db.Tx) error) error {
	had, err := getQuota(ctx, s.DB.Reader, teamID)
	if err != nil {
		return err
	}
	now := s.at(s.DB.Now())
	first := counterShard{}
	day, month := periodsAt(now, had)
	first.day, first.month = day.number, month.number
	if had == (teams.Quota{}) {
		y, m, d := now.UTC().Date()
		if first.dayUsed, err = s.CountedBetween(ctx, teamID, time.Date(y, m, d, 0, 0, 0, 0, time.UTC), now); err != nil {
			return err
		}
		if first.monthUsed, err = s.CountedBetween(ctx, teamID, time.Date(y, m, 1, 0, 0, 0, 0, time.UTC), now); err != nil {
			return err
		}
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		// A lock on the team id is needed here, because a team without a quota has no shard rows that concurrent
		// changes could lock.
		if err := tx.Serialize(ctx, "quota of "+teamID); err != nil {
			return err
		}
		all, err := lockShards(ctx, tx, teamID)
		if err != nil {
			return fmt.Errorf("lock the usage of a team's quota: %w", err)
		}
		q, err := getQuota(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		change(&q)
		if err := also(tx); err != nil {
			return err
		}
		if err := t.SetQuotaIn(ctx, tx, teamID, q); err != nil {
			return err
		}
		if q == (teams.Quota{}) {
			removeShards(ctx, tx, teamID)
			return nil
		}
		if len(all) == 0 {
			insertShards(ctx, tx, teamID)
			if all, err = lockShards(ctx, tx, teamID); err != nil {
				return fmt.Errorf("lock the usage of a team's quota: %w", err)
			}
			all = append(all, first)
		}
		day, month := sumShards(s.at(tx.Now()), q, all)
		return s.redistribute(ctx, tx, teamID, &day, &month, 0)
	})
}
