package quotas_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// limit sets Acme's quotas and records the subjects of the notices.
func limit(t *testing.T, n *testnode.Node, daily, monthly int64) (told func() []string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	n.Quotas.Notify = func(_ context.Context, tx *db.Tx, teamID, subject, _ string) error {
		tx.AfterCommit(func() {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, subject)
		})
		return nil
	}
	n.Must(n.Quotas.Set(t.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) {
		*q = teams.Quota{Daily: daily, Monthly: monthly}
	}))
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func send(t *testing.T, n *testnode.Node, to ...string) error {
	_, err := n.Emails.Send(t.Context(), n.Acme, testnode.Hello(to...), emails.Idempotency{})
	return err
}

func used(t *testing.T, n *testnode.Node) (day, month int64) {
	t.Helper()
	u, err := n.Quotas.Usage(t.Context(), n.Acme.TeamID)
	n.Must(err)
	return u.Day, u.Month
}

func addresses(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprintf("a%d@example.net", i))
	}
	return all
}

func TestQuota(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		told := limit(t, n, 10, 0)
		n.Must(send(t, n, addresses(7)...))
		if all := told(); len(all) != 0 {
			t.Errorf("told %q of 7 of 10", all)
		}
		n.Must(send(t, n, "b@example.net"))
		if all := told(); len(all) != 1 || !strings.HasPrefix(all[0], "80 %") {
			t.Errorf("told %q of 8 of 10, want one notice of 80 %%", all)
		}
		if err := send(t, n, addresses(3)...); fault.KindOf(err) != fault.DailyQuota || !quotas.Exceeded(err) {
			t.Errorf("3 more than 8 of 10: %v, want a fault of the day's quota", err)
		}
		n.Must(send(t, n, addresses(2)...))
		for range 3 {
			if err := send(t, n, "c@example.net"); fault.KindOf(err) != fault.DailyQuota {
				t.Errorf("the eleventh of 10: %v", err)
			}
		}
		if all := told(); len(all) != 2 || !strings.Contains(all[1], "used up") {
			t.Errorf("told %q, want one notice of 80 %% and one of all", all)
		}
		if day, month := used(t, n); day != 10 || month != 10 {
			t.Errorf("used %d and %d, want 10 each", day, month)
		}
		if list, _, err := n.Emails.List(t.Context(), n.Acme.TeamID, page.Page{Limit: 10}); err != nil || len(list) != 3 {
			t.Errorf("%d emails, %v, want those that were accepted", len(list), err)
		}
		n.Must(n.Quotas.Set(t.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) { q.Daily, q.Monthly = 0, 12 }))
		n.Must(send(t, n, addresses(2)...))
		if err := send(t, n, "c@example.net"); fault.KindOf(err) != fault.MonthlyQuota {
			t.Errorf("the thirteenth of 12: %v, want a fault of the month's quota", err)
		}
		n.Must(n.Quotas.Set(t.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) { *q = teams.Quota{} }))
		n.Must(send(t, n, addresses(50)...))
		if day, month := used(t, n); day != 0 || month != 0 {
			t.Errorf("used %d and %d without a quota, want 0", day, month)
		}
	})
}

// While a team is far below its quota, its emails are counted in separate shards. Concurrent senders on two nodes can
// together send exactly as many emails as the quota allows.
func TestExactWithTwoNodes(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const quota, asked = 150, 200
		told := limit(t, n, quota, 0)
		other := testnode.Must(quotas.New(n.Quotas.Deps))
		var accepted, refused atomic.Int64
		var wait sync.WaitGroup
		for i := range 8 {
			s := []*quotas.Service{n.Quotas, other}[i%2]
			wait.Go(func() {
				for range asked / 8 {
					err := s.Update(t.Context(), n.Acme.TeamID, 1, func(tx *db.Tx) error { return nil })
					switch {
					case err == nil:
						accepted.Add(1)
					case quotas.Exceeded(err):
						refused.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
		wait.Wait()
		if a, r := accepted.Load(), refused.Load(); a != quota || r != asked-quota {
			t.Errorf("%d accepted and %d refused, want %d and %d", a, r, quota, asked-quota)
		}
		if all := told(); len(all) != 2 {
			t.Errorf("told %q, want two notices", all)
		}
	})
}

// If a transaction is rolled back, the emails that it counted no longer count.
func TestCountIsUndone(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		limit(t, n, 100, 100)
		failure := errors.New("no")
		for range 2 { // the first pass adds up the shards; the second pass counts in one shard
			err := n.Quotas.Update(t.Context(), n.Acme.TeamID, 5, func(tx *db.Tx) error {
				tx.QueueOne(t.Context(), failure, `DELETE FROM teams WHERE id = $1`, db.NoID)
				return nil
			})
			if !errors.Is(err, failure) {
				t.Errorf("the transaction ended with %v", err)
			}
			if day, _ := used(t, n); day != 0 && day != 1 {
				t.Errorf("%d used, though the transaction failed", day)
			}
			n.Must(n.Quotas.Update(t.Context(), n.Acme.TeamID, 1, func(*db.Tx) error { return nil }))
		}
		if day, month := used(t, n); day != 2 || month != 2 {
			t.Errorf("used %d and %d, want 2", day, month)
		}
	})
}

// Received mail counts toward the quota but is never refused.
func TestReceivedCounts(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		limit(t, n, 10, 0)
		for range 12 {
			n.Must(n.DB.Update(t.Context(), func(tx *db.Tx) error {
				return n.Quotas.CountReceived(t.Context(), tx, n.Acme.TeamID, 1)
			}))
		}
		if day, _ := used(t, n); day != 12 {
			t.Errorf("used %d, want 12", day)
		}
		if err := send(t, n, "a@example.net"); !quotas.Exceeded(err) {
			t.Errorf("sent beyond what was received: %v", err)
		}
	})
}

// The usage in all shards resets at the start of each day and month.
func TestNextDay(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		told := limit(t, n, 10, 15)
		n.Must(send(t, n, addresses(10)...))
		for _, change := range []string{`day = day - 1`, `day = day - 1`, `day = day - 31, month = month - 1`} {
			n.Must(n.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE team_volumes SET `+change+`, day_told = 0, month_told = 0`)
				return nil
			}))
			if day, _ := used(t, n); day != 0 {
				t.Errorf("%d used on a new day", day)
			}
			if strings.Contains(change, "month") {
				n.Must(send(t, n, addresses(10)...))
				continue
			}
			n.Must(send(t, n, addresses(2)...))
		}
		if day, month := used(t, n); day != 10 || month != 10 {
			t.Errorf("used %d and %d, want 10 and 10", day, month)
		}
		if len(told()) < 3 {
			t.Errorf("told %q, want each day", told())
		}
	})
}

// Emails sent earlier in the day or month count toward a team's first quota.
func TestFirstQuota(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		n.Quotas.CountedBetween = func(_ context.Context, _ string, from, to time.Time) (int64, error) {
			if from.Day() == 1 && to.Day() != 1 {
				return 30, nil
			}
			return 8, nil
		}
		limit(t, n, 10, 100)
		if day, month := used(t, n); day != 8 || month < 8 {
			t.Errorf("used %d and %d before the quota", day, month)
		}
		if err := send(t, n, addresses(3)...); fault.KindOf(err) != fault.DailyQuota {
			t.Errorf("3 more than 8 of 10: %v", err)
		}
		limit(t, n, 5, 100)
		if day, _ := used(t, n); day != 8 {
			t.Errorf("used %d after the quota was changed, want 8", day)
		}
		err := n.Quotas.Set(t.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) { q.Daily = -1 })
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("a quota of -1: %v", err)
		}
	})
}

// If two concurrent commands set a team's first quotas, its earlier emails are counted only once.
func TestFirstQuotasAtOnce(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		n.Quotas.CountedBetween = func(context.Context, string, time.Time, time.Time) (int64, error) { return 8, nil }
		for range 5 {
			of, _ := n.Team("Other")
			var wait sync.WaitGroup
			for _, change := range []func(*teams.Quota){func(q *teams.Quota) { q.Daily = 10 },
				func(q *teams.Quota) { q.Monthly = 100 }} {
				wait.Go(func() {
					if err := n.Quotas.Set(t.Context(), n.Teams, of.TeamID, change); err != nil {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			u, err := n.Quotas.Usage(t.Context(), of.TeamID)
			n.Must(err)
			if u.Quota != (teams.Quota{Daily: 10, Monthly: 100}) || u.Day != 8 || u.Month != 8 {
				t.Fatalf("quotas %+v, of which %d and %d are used", u.Quota, u.Day, u.Month)
			}
		}
	})
}

// Suppressed recipients do not count toward the quota. A scheduled email counts when it is released.
func TestWhatCounts(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		limit(t, n, 3, 0)
		_, err := n.Suppressions.Add(t.Context(), n.Acme.TeamID, []string{"gone@example.net"})
		n.Must(err)
		n.Must(send(t, n, "gone@example.net", "a@example.net", "b@example.net"))
		later := testnode.Hello("c@example.net", "d@example.net")
		later.ScheduledAt = time.Now().Add(time.Hour).Format(time.RFC3339)
		first := n.Send(later)
		later.To = []string{"c@example.net"}
		second := n.Send(later)
		if day, _ := used(t, n); day != 2 {
			t.Errorf("used %d, want 2", day)
		}
		for _, emailID := range []string{first, second} {
			n.Must(n.Emails.Reschedule(t.Context(), n.Acme.TeamID, emailID, time.Now().UTC().Format(time.RFC3339)))
		}
		n.Run(n.Emails.Kinds()...)
		for emailID, want := range map[string]emails.State{first: emails.Failed, second: emails.Queued} {
			testnode.Until(t, "the email is "+string(want), func() bool { return n.Email(emailID).LastEvent == want })
		}
	})
}

// Transactions lock the quota counter before any other rows, so that two transactions that write the same rows cannot
// deadlock.
func TestCountsBeforeAllElse(t *testing.T) {
	t.Parallel()
	n := testnode.New(t, dbtest.Postgres(t), testnode.Options{})
	limit(t, n, 10_000, 0)
	n.Must(n.Quotas.Update(t.Context(), n.Acme.TeamID, 1, func(*db.Tx) error { return nil }))
	both := func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE teams SET name = name WHERE id = $1`, db.ID(n.Other.TeamID))
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	var runs atomic.Int64
	first := true
	n.Must(n.Quotas.Update(t.Context(), n.Acme.TeamID, 1, func(tx *db.Tx) error {
		runs.Add(1)
		if err := both(tx); err != nil || !first {
			return err
		}
		first = false
		wait.Go(func() {
			// This number of emails exceeds a shard's allowance, so the transaction adds up all shards.
			err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
				runs.Add(1)
				if err := n.Quotas.Count(t.Context(), tx, n.Acme.TeamID, 2000); err != nil {
					return err
				}
				return both(tx)
			})
			if err != nil {
				t.Error(err)
			}
		})
		testnode.Until(t, "the other one waits", func() bool {
			return n.Count(`SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
				AND wait_event_type = 'Lock'`) > 0
		})
		return nil
	}))
	wait.Wait()
	if got := runs.Load(); got != 2 {
		t.Errorf("the two transactions ran %d times: one was ended because both waited for each other", got)
	}
}

// A request that exceeds a mostly unused quota is refused, but no notice says that the quota is used up.
func TestTooManyAtOnce(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		told := limit(t, n, 10, 0)
		n.Must(send(t, n, "a@example.net"))
		if err := send(t, n, addresses(20)...); !quotas.Exceeded(err) {
			t.Errorf("20 more than 1 of 10: %v", err)
		}
		if all := told(); len(all) != 0 {
			t.Errorf("told %q of 1 of 10", all)
		}
		n.Must(send(t, n, addresses(7)...))
		if all := told(); len(all) != 1 || !strings.HasPrefix(all[0], "80 %") {
			t.Errorf("told %q of 8 of 10", all)
		}
		if err := send(t, n, addresses(3)...); !quotas.Exceeded(err) {
			t.Errorf("3 more than 8 of 10: %v", err)
		}
		if all := told(); len(all) != 2 || !strings.Contains(all[1], "nearly used up") {
			t.Errorf("told %q of 3 more than 8 of 10", all)
		}
	})
}

// If usage was counted while the clock was set far in the future, the quota resets normally once the clock is correct.
func TestClockSetBack(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		told := limit(t, n, 10, 0)
		n.Must(send(t, n, addresses(10)...))
		change := func(text string) {
			n.Must(n.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `UPDATE team_volumes SET `+text)
				return nil
			}))
		}
		change(`day = day + 400, month = month + 13, day_told = day_told + 800, month_told = month_told + 26`)
		if err := send(t, n, "a@example.net"); !quotas.Exceeded(err) {
			t.Errorf("the eleventh of 10: %v", err)
		}
		n.Must(n.Quotas.Set(t.Context(), n.Teams, n.Acme.TeamID, func(q *teams.Quota) { q.Daily = 11 }))
		n.Must(send(t, n, "a@example.net"))
		change(`day = day - 1, day_told = day_told - 2`) // the next day
		before := len(told())
		n.Must(send(t, n, addresses(9)...))
		if after := told(); len(after) != before+1 {
			t.Errorf("told %q, want a notice of the next day", after)
		}
	})
}
