package jobs_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// Held jobs run again only after calls to Release, each of which releases a limited number of jobs. A hold does not
// count as a try and does not add to a job's age. Jobs that are held with another key stay held.
func TestHeldJobsWaitForRelease(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const n = 700 // more jobs than one call to Release handles
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "work", Workers: 100, Owner: func(string) string { return "x" },
			Handle: func(ctx context.Context, j jobs.Job) error {
				b.saw(j)
				if j.Attempt > 1 {
					return b.finish(ctx, j)
				}
				return d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
					b.q.Hold(ctx, tx, j, j.Payload)
					return nil
				})
			}})
		var all []jobs.New
		for i := range n + 1 {
			all = append(all, jobs.New{Kind: "work", Lane: fmt.Sprint("lane", i%3), Payload: "broadcast"})
		}
		all[n].Payload = "other"
		b.insert(t, all...)
		stop := b.start(t)
		b.await(t, n+1)
		stop()
		count := func(where string) (found int) {
			t.Helper()
			if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE `+where).Scan(&found); err != nil {
				t.Fatal(err)
			}
			return found
		}
		if held := count(`held <> '' AND holder IS NULL AND NOT parked`); held != n+1 {
			t.Fatalf("%d jobs are held, want %d", held, n+1)
		}
		// The update makes the jobs an hour old.
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET created_at = created_at - $1, set_at = set_at - $1`,
				time.Hour.Microseconds())
			return err
		}); err != nil {
			t.Fatal(err)
		}
		steps := 0
		if err := d.Repeat(t.Context(), func(tx *db.Tx) (int64, error) {
			steps++
			return b.q.Release(t.Context(), tx, "broadcast")
		}); err != nil {
			t.Fatal(err)
		}
		if steps != 3 {
			t.Errorf("released in %d steps, want 500 jobs, 200 and none", steps)
		}
		again := newBench(t, d)
		again.r.Handle(jobs.Kind{Name: "work", Handle: func(ctx context.Context, j jobs.Job) error {
			again.saw(j)
			return again.finish(ctx, j)
		}})
		defer again.start(t)()
		for _, j := range again.await(t, n) {
			if age := d.Now().Sub(j.CreatedAt); j.Tries != 0 || j.Failures != 0 || age > 30*time.Minute {
				t.Fatalf("a released job has %d tries, %d failures and an age of %s", j.Tries, j.Failures, age)
			}
		}
		if held := count(`held = 'other'`); held != 1 {
			t.Errorf("%d jobs are held with the other key, want 1", held)
		}
	})
}

// A job that is held until a time runs at that time or after Release, whichever comes first. The hold stores the job's
// payload and is over once the job is claimed, so that a later call to Release does not change the job.
func TestHoldUntil(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		until := d.Now().Add(time.Second)
		b.r.Handle(jobs.Kind{Name: "work", Workers: 4, Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return d.Update(ctx, func(tx *db.Tx) error {
				again := j
				again.Payload += " again"
				switch j.Payload {
				case "early":
					b.q.HoldUntil(ctx, tx, again, "key", until.Add(time.Hour), "why")
				case "late":
					b.q.HoldUntil(ctx, tx, again, "other", until, "why")
				default:
					b.q.Retry(ctx, tx, j, until.Add(2*time.Hour), "")
				}
				return nil
			})
		}})
		b.insert(t, jobs.New{Kind: "work", Payload: "early"}, jobs.New{Kind: "work", Lane: "l", Payload: "late"})
		defer b.start(t)()
		b.await(t, 2)
		for key, want := range map[string]bool{"key": true, "none": false} {
			if found, err := b.q.AnyHeld(t.Context(), d.Reader, key); err != nil || found != want {
				t.Errorf("a job is held with %q: %v, %v", key, found, err)
			}
		}
		release := func(key string) (n int64) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
				n, err = b.q.Release(t.Context(), tx, key)
				return err
			}); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := release("key"); n != 1 {
			t.Errorf("%d jobs were released", n)
		}
		for _, j := range b.await(t, 4)[2:] {
			if j.LastError != "why" || j.Tries != 0 || j.Payload == "late again" && d.Now().Before(until) {
				t.Errorf("it ran again as %+v", j)
			}
		}
		if n := release("key") + release("other"); n != 0 {
			t.Errorf("%d jobs that are not held any more were released", n)
		}
	})
}

// A worker that lost its job cannot put the job on hold.
func TestHoldIsFenced(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.insert(t, jobs.New{Kind: "work"})
		var jobID string
		if err := d.QueryRow(t.Context(), `SELECT id FROM jobs`).Scan((*db.ID)(&jobID)); err != nil {
			t.Fatal(err)
		}
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			b.q.Hold(t.Context(), tx, jobs.Job{ID: jobID, Attempt: 7}, "key")
			return nil
		})
		if err == nil {
			t.Error("a job was held by an attempt that does not have it")
		}
	})
}
