package jobs_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// bench has a queue, a runner and the list of jobs that the runner's handlers received.
type bench struct {
	d *db.DB
	q *jobs.Queue
	r *jobs.Runner

	mu   sync.Mutex
	seen []jobs.Job
	news chan struct{}
}

func newBench(t *testing.T, d *db.DB) *bench {
	t.Helper()
	q := jobs.NewQueue(d)
	return &bench{d: d, q: q, r: jobs.NewRunner(d, q, slog.New(slog.DiscardHandler), 5*time.Second),
		news: make(chan struct{}, 100000)}
}

func (b *bench) insert(t *testing.T, all ...jobs.New) {
	t.Helper()
	if err := b.d.Update(t.Context(),
		func(tx *db.Tx) error { b.q.Insert(t.Context(), tx, all...); return nil }); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) finish(ctx context.Context, j jobs.Job) error {
	return b.q.End(ctx, j)
}

func (b *bench) saw(j jobs.Job) {
	b.mu.Lock()
	b.seen = append(b.seen, j)
	b.mu.Unlock()
	b.news <- struct{}{}
}

// await waits until the handlers have received n jobs in total.
func (b *bench) await(t *testing.T, n int) []jobs.Job {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		b.mu.Lock()
		if len(b.seen) >= n {
			defer b.mu.Unlock()
			return append([]jobs.Job(nil), b.seen...)
		}
		b.mu.Unlock()
		select {
		case <-b.news:
		case <-limit:
			t.Fatalf("saw %d jobs, want %d", len(b.seen), n)
		}
	}
}

// start runs the runner; the returned function stops the runner and waits for it to end.
func (b *bench) start(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- b.r.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func left(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestEachJobRunsOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "k", Workers: 20, Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}})
		var all []jobs.New
		for i := range 300 {
			all = append(all, jobs.New{Kind: "k", Lane: fmt.Sprint("lane", i%7), Payload: fmt.Sprint(i)})
		}
		b.insert(t, all[:100]...)
		stop := b.start(t)
		b.insert(t, all[100:]...)
		seen := map[string]int{}
		for _, j := range b.await(t, 300) {
			seen[j.Payload]++
			if j.Attempt != 1 {
				t.Errorf("job %s ran in attempt %d", j.Payload, j.Attempt)
			}
		}
		stop()
		if len(seen) != 300 || left(t, d) != 0 {
			t.Errorf("%d different jobs ran, %d are left", len(seen), left(t, d))
		}
	})
}

func TestErrorsAreRetriedThenParked(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		healed := false
		b.r.Handle(jobs.Kind{Name: "k", Schedule: []time.Duration{time.Millisecond, 2 * time.Millisecond},
			Handle: func(ctx context.Context, j jobs.Job) error {
				defer b.saw(j)
				if !healed {
					if j.Attempt == 2 {
						panic("worse")
					}
					return errors.New("no luck")
				}
				return b.finish(ctx, j)
			}})
		b.insert(t, jobs.New{Kind: "k", Payload: "p"})
		stop := b.start(t)
		seen := b.await(t, 3)
		stop()
		if seen[1].LastError != "no luck" || seen[2].LastError != "panic: worse" {
			t.Errorf("last errors %q, %q", seen[1].LastError, seen[2].LastError)
		}
		parked, err := jobs.ParkedJobs(t.Context(), d.Reader, "", 10)
		if err != nil || len(parked) != 1 || parked[0].Failures != 3 || parked[0].LastError != "no luck" {
			t.Fatalf("parked %+v, %v", parked, err)
		}
		stats, err := jobs.Stats(t.Context(), d.Reader)
		if err != nil || len(stats) != 1 || stats[0].Parked != 1 || !stats[0].DueFrom.IsZero() {
			t.Errorf("stats %+v, %v", stats, err)
		}

		healed = true
		b2 := newBench(t, d)
		b2.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b2.saw(j)
			return b2.finish(ctx, j)
		}})
		stop = b2.start(t)
		if err := b2.q.Unpark(t.Context(), parked[0].ID); err != nil {
			t.Fatal(err)
		}
		if j := b2.await(t, 1)[0]; j.Attempt != 4 || j.Failures != 0 || j.Payload != "p" {
			t.Errorf("after Unpark ran %+v", j)
		}
		stop()
		if err := b2.q.Unpark(t.Context(), parked[0].ID); err == nil {
			t.Error("Unpark of a job that is gone reports no error")
		}
	})
}

// A job's Failures count consecutive errors. An attempt that ends without an error resets Failures, and only such
// attempts count as Tries. Insert makes a parked job due again.
func TestFailuresCountInARow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		steps := []string{"fail", "fail", "retry", "fail", "fail", "retry", "fail", "fail", "fail", "finish"}
		wantTries := []int{0, 0, 0, 1, 1, 1, 2, 2, 2, 2}
		wantFailures := []int{0, 1, 2, 0, 1, 2, 0, 1, 2, 0}
		b.r.Handle(jobs.Kind{Name: "k", Schedule: []time.Duration{time.Millisecond, time.Millisecond},
			Handle: func(ctx context.Context, j jobs.Job) error {
				defer b.saw(j)
				switch steps[j.Attempt-1] {
				case "retry":
					return d.Update(ctx, func(tx *db.Tx) error {
						b.q.Retry(ctx, tx, j, tx.Now(), "")
						return nil
					})
				case "finish":
					return b.finish(ctx, j)
				}
				return errors.New("no luck")
			}})
		b.insert(t, jobs.New{Kind: "k", Dedupe: "x"})
		stop := b.start(t)
		for i, j := range b.await(t, 9) {
			if j.Attempt != i+1 || j.Tries != wantTries[i] || j.Failures != wantFailures[i] {
				t.Errorf("attempt %d has %d tries and %d failures, want %d and %d", j.Attempt, j.Tries, j.Failures, wantTries[i],
					wantFailures[i])
			}
		}
		stop()
		if parked, err := jobs.ParkedJobs(t.Context(), d.Reader, "", 10); err != nil || len(parked) != 1 {
			t.Fatalf("after three failures in a row %+v is parked, %v", parked, err)
		}
		b2 := newBench(t, d)
		b2.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b2.saw(j)
			return b2.finish(ctx, j)
		}})
		b2.start(t)
		b2.insert(t, jobs.New{Kind: "k", Dedupe: "x"})
		if j := b2.await(t, 1)[0]; j.Attempt != 10 || j.Failures != 0 || j.Tries != 2 {
			t.Errorf("after Insert ran %+v", j)
		}
	})
}

// A call to Wait does not count as a try.
func TestWaitIsNoTry(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			if j.Attempt < 4 {
				return d.Update(ctx, func(tx *db.Tx) error {
					b.q.Wait(ctx, tx, j, tx.Now(), "busy")
					return nil
				})
			}
			return b.finish(ctx, j)
		}})
		b.insert(t, jobs.New{Kind: "k"})
		b.start(t)
		for _, j := range b.await(t, 4) {
			if j.Tries != 0 || j.Failures != 0 || j.Attempt > 1 && j.LastError != "busy" {
				t.Errorf("ran %+v", j)
			}
		}
	})
}

func TestMoveRevivesAParkedJob(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			if j.Attempt == 1 {
				return errors.New("no luck")
			}
			return b.finish(ctx, j)
		}})
		b.insert(t, jobs.New{Kind: "k", Dedupe: "x"})
		b.start(t)
		b.await(t, 1)
		for moved := false; !moved; {
			err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
				moved, err = b.q.Move(t.Context(), tx, "k", "", "k", "x", tx.Now())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		b.await(t, 2)
	})
}

// A cron that panics runs again, even after many panics.
func TestCronIsNeverParked(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		newBench(t, d).insert(t, jobs.New{Kind: "cron.c", Dedupe: "c"})
		for run := range 3 {
			b := newBench(t, d)
			b.r.Cron(jobs.Cron{Name: "c", Every: time.Hour, Run: func(context.Context) error {
				b.saw(jobs.Job{})
				panic("worse")
			}})
			stop := b.start(t)
			b.await(t, 1)
			stop()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				n, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = 0 WHERE kind = 'cron.c' AND holder IS NULL
					AND NOT parked
					AND failures = $1`, run+1)
				if err == nil && n != 1 {
					t.Errorf("after run %d it does not wait for the next", run+1)
				}
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

func TestTheFenceHolds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		first := make(chan jobs.Job, 1)
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			if j.Attempt == 1 {
				first <- j
				// The update simulates another node that takes over the job.
				return d.Update(ctx, func(tx *db.Tx) error {
					_, err := tx.Exec(ctx, `UPDATE jobs SET attempt = attempt + 1, run_at = 0, holder = NULL
						WHERE id = $1`, db.ID(j.ID))
					return errors.Join(err, nil)
				})
			}
			return errors.New("the scan was quick enough to find it again")
		}})
		b.insert(t, jobs.New{Kind: "k"})
		stop := b.start(t)
		old := <-first
		stop()
		for what, f := range map[string]func(tx *db.Tx) error{
			"finish": func(tx *db.Tx) error {
				b.q.Finish(t.Context(), tx, old)
				return nil
			},
			"retry": func(tx *db.Tx) error {
				b.q.Retry(t.Context(), tx, old, time.Now(), "")
				return nil
			},
			"park": func(tx *db.Tx) error {
				b.q.Park(t.Context(), tx, old, "")
				return nil
			},
		} {
			if err := d.Update(t.Context(), f); !errors.Is(err, jobs.ErrLost) {
				t.Errorf("%s with an old attempt: %v, want ErrLost", what, err)
			}
		}
		if left(t, d) != 1 {
			t.Error("the job is gone")
		}
	})
}

func TestStoppingReturnsLeases(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		b.r = jobs.NewRunner(d, b.q, slog.New(slog.DiscardHandler), 10*time.Millisecond)
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			b.saw(j)
			<-ctx.Done()
			return ctx.Err()
		}})
		b.insert(t, jobs.New{Kind: "k"})
		stop := b.start(t)
		b.await(t, 1)
		stop()

		b2 := newBench(t, d)
		b2.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b2.saw(j)
			return b2.finish(ctx, j)
		}})
		b2.start(t)
		if j := b2.await(t, 1)[0]; j.LastError != "" {
			t.Errorf("stopping counted as a failure: %q", j.LastError)
		}
	})
}

// When a process starts on SQLite, the jobs that a killed process had claimed become due immediately.
func TestDeadProcessOnSQLite(t *testing.T) {
	d := dbtest.SQLite(t)
	b := newBench(t, d)
	b.insert(t, jobs.New{Kind: "k"})
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE jobs SET holder = id, attempt = 1, run_at = $1`,
			time.Now().Add(time.Hour).UnixMicro())
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
		defer b.saw(j)
		return b.finish(ctx, j)
	}})
	b.start(t)
	if j := b.await(t, 1)[0]; j.Attempt != 2 {
		t.Errorf("attempt %d, want 2", j.Attempt)
	}
}

// Two nodes share the jobs in one database, and each job runs on only one node.
func TestTwoNodes(t *testing.T) {
	url := dbtest.PostgresURL(t)
	var benches []*bench
	for range 2 {
		b := newBench(t, dbtest.Open(t, url))
		b.r.Handle(jobs.Kind{Name: "k", Workers: 8, Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}})
		benches = append(benches, b)
	}
	for i := range 400 {
		benches[i%2].insert(t, jobs.New{Kind: "k", Lane: fmt.Sprint(i % 3), Payload: fmt.Sprint(i)})
	}
	for _, b := range benches {
		b.start(t)
	}
	limit := time.After(30 * time.Second)
	for left(t, benches[0].d) > 0 {
		select {
		case <-benches[0].news:
		case <-benches[1].news:
		case <-time.After(50 * time.Millisecond):
		case <-limit:
			t.Fatalf("%d jobs are left", left(t, benches[0].d))
		}
	}
	seen := map[string]int{}
	for _, b := range benches {
		b.mu.Lock()
		for _, j := range b.seen {
			seen[j.Payload]++
		}
		b.mu.Unlock()
	}
	for p, n := range seen {
		if n != 1 {
			t.Errorf("job %s ran %d times", p, n)
		}
	}
}

func TestDedupeMoveAndRemove(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		far := time.Now().Add(time.Hour)
		b.insert(t, jobs.New{Kind: "k", Dedupe: "x", RunAt: far}, jobs.New{Kind: "k", Dedupe: "x", RunAt: far})
		if n := left(t, d); n != 1 {
			t.Fatalf("%d jobs wait, want 1", n)
		}
		b.r.Handle(jobs.Kind{Name: "k", Handle: func(ctx context.Context, j jobs.Job) error {
			defer b.saw(j)
			return b.finish(ctx, j)
		}})
		b.start(t)
		var moved, removed, again bool
		err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
			moved, err = b.q.Move(t.Context(), tx, "k", "", "k", "x", time.Now().Add(-time.Second))
			return err
		})
		if err != nil || !moved {
			t.Fatalf("moved %v, %v", moved, err)
		}
		b.await(t, 1)
		b.insert(t, jobs.New{Kind: "k", Dedupe: "y", RunAt: far})
		err = d.Update(t.Context(), func(tx *db.Tx) (err error) {
			if removed, err = b.q.Remove(t.Context(), tx, "k", "", "y"); err != nil {
				return err
			}
			again, err = b.q.Remove(t.Context(), tx, "k", "", "y")
			return err
		})
		if err != nil || !removed || again {
			t.Errorf("removed %v, again %v, %v", removed, again, err)
		}
	})
}

func TestCron(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		runs := 0
		b.r.Cron(jobs.Cron{Name: "sweep", Every: 20 * time.Millisecond, Run: func(context.Context) error {
			runs++
			b.saw(jobs.Job{})
			if runs == 2 {
				return errors.New("a bad day")
			}
			return nil
		}})
		stop := b.start(t)
		b.await(t, 4)
		stop()
		if n := left(t, d); n != 1 {
			t.Errorf("a cron has %d jobs, want 1", n)
		}
	})
}

// A transaction that inserts jobs while a node starts may send a hint for a kind that is not yet registered.
func TestHintsWhileKindsAreRegistered(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		b := newBench(t, d)
		const workers, each = 4, 10
		var inserting sync.WaitGroup
		for worker := range workers {
			inserting.Go(func() {
				for n := range each {
					b.insert(t, jobs.New{Kind: fmt.Sprint("k", (n+worker)%each), Lane: "l"})
					b.r.LimitRaised("k0", "l")
				}
			})
		}
		for n := range each {
			b.r.Handle(jobs.Kind{Name: fmt.Sprint("k", n), Handle: func(ctx context.Context, j jobs.Job) error {
				defer b.saw(j)
				return b.finish(ctx, j)
			}})
		}
		inserting.Wait()
		b.start(t)
		b.await(t, workers*each)
	})
}
