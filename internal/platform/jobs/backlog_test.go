package jobs_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// MeasureBacklog counts the jobs of both classes, and finds the job that has been due longest. A job that was due
// immediately counts from its insertion, although its run_at is an hour earlier.
func TestMeasureBacklog(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		now := d.Now()
		measure := func() (single, bulk jobs.Backlog) {
			t.Helper()
			single, bulk, err := jobs.MeasureBacklog(t.Context(), d.Reader, "mail", "|bulk", now)
			if err != nil {
				t.Fatal(err)
			}
			return single, bulk
		}
		if single, bulk := measure(); single != (jobs.Backlog{}) || bulk != (jobs.Backlog{}) {
			t.Errorf("an empty queue: %+v, %+v", single, bulk)
		}
		b.insert(t, jobs.New{Kind: "mail", Lane: "a|1"}, jobs.New{Kind: "mail", Lane: "b|1"},
			jobs.New{Kind: "mail", Lane: "b|1", RunAt: now.Add(time.Hour)},
			jobs.New{Kind: "mail", Lane: "a|1|bulk", RunAt: now.Add(-3 * time.Hour)},
			jobs.New{Kind: "mail", Lane: "c|1|bulk"}, jobs.New{Kind: "other", Lane: "a|1", RunAt: now.Add(-time.Hour)},
			jobs.New{Kind: "mail", Lane: "parked", Payload: "parked"},
			jobs.New{Kind: "mail", Lane: "claimed", Payload: "claimed"})
		exec := func(sql string, args ...any) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), sql, args...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		exec(`UPDATE jobs SET parked = TRUE, run_at = $1 WHERE payload = 'parked'`, int64(1<<63-1))
		exec(`UPDATE jobs SET holder = id, run_at = $1 WHERE payload = 'claimed'`, int64(1<<63-2))
		now = d.Now()
		single, bulk := measure()
		if single.Due != 2 || single.Later != 1 || single.Oldest > time.Minute {
			t.Errorf("single mail: %+v", single)
		}
		if bulk.Due != 2 || bulk.Later != 0 || bulk.Oldest < 3*time.Hour || bulk.Oldest > 3*time.Hour+time.Minute {
			t.Errorf("bulk mail: %+v", bulk)
		}
		// The jobs were inserted after the measurement had begun, or by a node whose clock is ahead.
		began := now
		now = now.Add(-10 * time.Second)
		if single, _ := measure(); single.Due != 2 || single.Oldest > time.Minute {
			t.Errorf("jobs that are inserted during the measurement: %+v", single)
		}
		now = began
		// One of the immediate jobs was inserted seven minutes ago.
		exec(`UPDATE jobs SET run_at = run_at - $1, set_at = set_at - $1 WHERE lane = 'b|1' AND set_at > 0`,
			(7 * time.Minute).Microseconds())
		if single, _ := measure(); single.Oldest < 7*time.Minute || single.Oldest > 8*time.Minute {
			t.Errorf("after seven minutes: %+v", single)
		}
		// A retry has been due for half an hour. Its run_at is later than those of the immediate jobs.
		b.insert(t, jobs.New{Kind: "mail", Lane: "a|1", RunAt: now.Add(-30 * time.Minute)})
		if single, _ := measure(); single.Oldest < 30*time.Minute || single.Oldest > 31*time.Minute || single.Due != 3 {
			t.Errorf("with an old retry: %+v", single)
		}
		all, _, err := jobs.MeasureBacklog(t.Context(), d.Reader, "mail", "", now)
		if err != nil || all.Due != 5 || all.Later != 1 {
			t.Errorf("without classes: %+v, %v", all, err)
		}
		parked, err := jobs.CountParked(t.Context(), d.Reader)
		if err != nil || len(parked) != 1 || parked["mail"] != 1 {
			t.Errorf("parked: %v, %v", parked, err)
		}
	})
}

// Observe gets each result, and Running the jobs in progress.
func TestObserveJobs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		results := make(chan string, 100)
		b.r.Observe = func(kind, result string) { results <- kind + " " + result }
		during := make(chan int64, 1)
		b.r.Handle(jobs.Kind{Name: "good", Handle: func(ctx context.Context, j jobs.Job) error {
			during <- b.r.Running()["good"]
			return b.finish(ctx, j)
		}})
		b.r.Handle(jobs.Kind{Name: "bad", Schedule: []time.Duration{time.Millisecond},
			Handle: func(context.Context, jobs.Job) error { return errors.New("broken") }})
		b.insert(t, jobs.New{Kind: "good"}, jobs.New{Kind: "bad"})
		defer b.start(t)()
		seen := map[string]int{}
		for len(seen) < 3 {
			select {
			case r := <-results:
				seen[r]++
			case <-time.After(20 * time.Second):
				t.Fatalf("observed %v", seen)
			}
		}
		if seen["good done"] != 1 || seen["bad failed"] != 1 || seen["bad parked"] != 1 || <-during != 1 {
			t.Errorf("observed %v", seen)
		}
		if n := b.r.Running()["good"]; n != 0 {
			t.Errorf("%d jobs still run", n)
		}
	})
}
