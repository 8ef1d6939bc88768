package jobs

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

type storeAway struct{}

func (storeAway) Error() string { return "the store is away" }
func (storeAway) Outage() bool  { return true }

// A job that fails because a part of this installation is not available is repeated within 30 seconds, however often
// this happens within a day. It is not parked, and its next error counts as its first. After a day, such failures count
// like others.
func TestJobsWaitForTheEndOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		away := fmt.Errorf("read a file: %w", storeAway{})
		since := func(ago time.Duration) string {
			return outageMark + d.Now().Add(-ago).UTC().Format(time.RFC3339) + ": read a file"
		}
		for _, c := range []struct {
			cause     error
			attempt   int
			lastError string
			schedule  []time.Duration
			wait      time.Duration // 0 means that the job is parked
			failures  int
		}{
			{away, 1, "", []time.Duration{time.Second}, time.Second, 0},
			{away, 2, "other", []time.Duration{time.Hour}, outageWait, 0},
			{away, 2, since(time.Hour), []time.Duration{time.Second}, outageWait, 0},
			{away, 10_000, since(time.Hour), []time.Duration{time.Second}, outageWait, 0},
			{away, 1, "", nil, outageWait, 0},
			{away, 2, since(23 * time.Hour), []time.Duration{time.Second}, outageWait, 0},
			{away, 2, since(25 * time.Hour), []time.Duration{time.Second}, 0, 10},
			{away, 2, since(25 * time.Hour), slices.Repeat([]time.Duration{10 * time.Second}, 10), 10 * time.Second, 10},
			{db.ErrUnavailable, 2, since(25 * time.Hour), []time.Duration{time.Second}, 0, 10},
			{db.ErrUnavailable, outageTries, since(time.Minute), []time.Duration{time.Second}, outageWait, 0},
			{db.ErrUnknown, 1, since(0), []time.Duration{time.Second}, outageWait, 0},
			{db.ErrUnavailable, outageTries + 1, since(time.Hour), []time.Duration{time.Second}, 0, 10},
			{errors.New("why"), 1, outageMark, []time.Duration{time.Second}, 0, 10},
		} {
			exec(t, d, `DELETE FROM jobs`)
			insert(t, d, New{Kind: "k"})
			j := Job{Kind: "k", Lane: "k", Failures: 9, Attempt: c.attempt, LastError: c.lastError}
			if err := d.QueryRow(t.Context(), `SELECT id FROM jobs`).Scan((*db.ID)(&j.ID)); err != nil {
				t.Fatal(err)
			}
			exec(t, d, `UPDATE jobs SET failures = 9, attempt = $1`, c.attempt)
			if err := r.retry(newDispatcher(r, Kind{Schedule: c.schedule}), j, c.cause); err != nil {
				t.Fatal(err)
			}
			var at int64
			var failures, tries int
			var parked bool
			var why string
			if err := d.QueryRow(t.Context(), `SELECT run_at, parked, failures, tries, last_error FROM jobs`).Scan(&at,
				&parked, &failures, &tries, &why); err != nil {
				t.Fatal(err)
			}
			if before, ok := j.OutageSince(); ok && fault.IsOutage(c.cause) {
				if again, ok := (&Job{LastError: why}).OutageSince(); !ok || !again.Equal(before) {
					t.Errorf("the outage began at %v, and after another failure: %q", before, why)
				}
			}
			wait := time.UnixMicro(at).Sub(d.Now())
			if parked != (c.wait == 0) || failures != c.failures || tries != 0 || !parked &&
				(wait < c.wait*8/10-time.Microsecond || wait > min(c.wait*12/10, 30*time.Second)) {
				t.Errorf("after %v in attempt %d with %q: parked %v, due in %v, %d failures, %d tries", c.cause, c.attempt,
					c.lastError, parked, wait, failures, tries)
			}
		}
	})
}
