package quotas

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// period is a team's usage in one day or month, together with its limit and the last notice sent.
type period struct {
	name     string // daily or monthly
	number   int64  // day or month, numbered from a fixed start
	used     int64
	limit    int64 // 0 means no limit
	notified int64
}

// periodsAt returns the day and the month that contain a time, with no usage counted.
func periodsAt(at time.Time, q teams.Quota) (day, month period) {
	at = at.UTC()
	return period{name: "daily", number: at.Unix() / 86400, limit: q.Daily},
		period{name: "monthly", number: int64(at.Year())*12 + int64(at.Month()) - 1, limit: q.Monthly}
}

// add adds a shard's usage to x. If a node whose clock is ahead has moved the shard to the next period, x moves to that
// period. If a shard is more than one period ahead, the node that wrote it had a wrong clock. Usage in such a shard
// counts in the current period, because otherwise the quota would not reset until the later period.
func (x *period) add(number, used, told int64) {
	if number > x.number+1 {
		number, told = x.number, 0
	}
	switch {
	case number > x.number:
		x.number, x.used = number, used
	case number == x.number:
		x.used += used
	}
	x.notified = max(x.notified, told)
}

// exceededBy reports whether n more emails would exceed the limit.
func (x *period) exceededBy(n int64) bool { return x.limit > 0 && n > 0 && x.used+n > x.limit }

// warnAt returns the usage at which the team gets a warning: 80 % of the limit, rounded up.
func (x *period) warnAt() int64 { return x.limit - x.limit/5 }

// allowance returns how many emails may be counted in all shards together before a transaction must add up the shards.
func (x *period) allowance() int64 {
	switch {
	case x.limit == 0:
		return unlimited
	case x.used < x.warnAt():
		return x.warnAt() - 1 - x.used
	}
	return max(0, x.limit-1-x.used)
}

// noticeLevel returns which notice a request for n more emails should cause, as a number that can be compared with
// x.notified; 0 means no notice. A request that exceeds the quota while less than 80 % is used causes no notice.
func (x *period) noticeLevel(n int64) int64 {
	switch {
	case x.limit == 0 || x.used < x.warnAt():
		return 0
	case x.used >= x.limit || x.exceededBy(n):
		return 2*x.number + 1
	}
	return 2 * x.number
}

// countLocked locks all shards and counts n emails if the quota allows them. If anyway is true, the emails are counted
// even if they exceed the quota. Finally, countLocked redistributes the remaining quota among the shards and enqueues
// any notices that are due.
func (s *Service) countLocked(ctx context.Context, tx *db.Tx, teamID string, n int64, anyway bool) error {
	day, month, err := s.lock(ctx, tx, teamID)
	if err != nil || day.limit == 0 && month.limit == 0 {
		return err
	}
	var refusal error
	asked := n
	switch {
	case anyway:
		asked = 0
	case day.exceededBy(n):
		refusal = exceeded(fault.DailyQuota, &day, n)
	case month.exceededBy(n):
		refusal = exceeded(fault.MonthlyQuota, &month, n)
	}
	if refusal == nil {
		day.used, month.used, asked = day.used+n, month.used+n, 0
	}
	if err := s.redistribute(ctx, tx, teamID, &day, &month, asked); err != nil {
		return err
	}
	return refusal
}

// lock locks a team's shards, creating them if necessary, and returns their total usage. The limits are read after the
// shards are locked, because changes to the limits take the same lock.
func (s *Service) lock(ctx context.Context, tx *db.Tx, teamID string) (day, month period, err error) {
	q, err := getQuota(ctx, tx.Reader, teamID)
	if err != nil || q == (teams.Quota{}) {
		return day, month, err
	}
	all, err := lockShards(ctx, tx, teamID)
	if err == nil && len(all) == 0 {
		insertShards(ctx, tx, teamID)
		all, err = lockShards(ctx, tx, teamID)
	}
	if err == nil {
		q, err = getQuota(ctx, tx.Reader, teamID)
	}
	if err != nil {
		return day, month, fmt.Errorf("add up the usage of a team's quota: %w", err)
	}
	day, month = sumShards(s.at(tx.Now()), q, all)
	return day, month, nil
}

func sumShards(at time.Time, q teams.Quota, all []counterShard) (day, month period) {
	day, month = periodsAt(at, q)
	for _, p := range all {
		day.add(p.day, p.dayUsed, p.dayNotified)
		month.add(p.month, p.monthUsed, p.monthNotified)
	}
	return day, month
}

// redistribute writes the shards and enqueues the notices that the team has not yet received in the current day or
// month. The parameter asked is the number of emails that were refused.
func (s *Service) redistribute(ctx context.Context, tx *db.Tx, teamID string, day, month *period, asked int64) error {
	for _, x := range []*period{day, month} {
		level := x.noticeLevel(asked)
		if level <= x.notified {
			continue
		}
		x.notified = level
		subject, text := notice(x)
		if err := s.Notify(ctx, tx, teamID, subject, text); err != nil {
			return err
		}
	}
	n := shardCount(tx)
	dayShare, monthShare := day.allowance()/n, month.allowance()/n
	writeShards(ctx, tx, teamID, day, month, dayShare, monthShare)
	tight := min(dayShare, monthShare) < tightBelow
	tx.AfterCommit(func() { s.setTight(teamID, tight) })
	return nil
}

func (x *period) unit() string {
	if x.name == "daily" {
		return "day"
	}
	return "month"
}

// exceeded returns the fault for n emails that exceed the quota.
func exceeded(k fault.Kind, x *period, n int64) error {
	return fault.New(k, "", "This team may send and receive %d emails a %s, of which %d are used; this would be %d "+
		"more. Wait for the next %s (UTC), or ask the operator for more.", x.limit, x.unit(), x.used, n, x.unit())
}

func notice(x *period) (subject, text string) {
	if x.notified%2 == 1 && x.used < x.limit {
		return fmt.Sprintf("Your %s quota of emails is nearly used up", x.name),
			fmt.Sprintf("Your team may send and receive %d emails a %s and has used %d. Requests for more than what is left "+
				"get the error %s_quota_exceeded until the next %s begins (UTC).\n\nAsk the operator if you need more.\n",
				x.limit, x.unit(), x.used, x.name, x.unit())
	}
	if x.notified%2 == 1 {
		return fmt.Sprintf("Your %s quota of emails is used up", x.name),
			fmt.Sprintf("Your team may send and receive %d emails a %s and has used %d. More are refused until the "+
				"next %s begins (UTC): requests get the error %s_quota_exceeded, broadcasts pause, and automations wait. Mail "+
				"that comes in is still received.\n\nAsk the operator if you need more.\n", x.limit, x.unit(), x.used, x.unit(),
				x.name)
	}
	return fmt.Sprintf("80 %% of your %s quota of emails is used", x.name),
		fmt.Sprintf("Your team may send and receive %d emails a %s and has used %d. When the quota is used up, more "+
			"are refused until the next %s begins (UTC).\n\nAsk the operator if you need more.\n", x.limit, x.unit(), x.used,
			x.unit())
}
