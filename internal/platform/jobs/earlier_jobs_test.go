package jobs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A claim reads a lane only from the time of the earliest hint. Each method that makes a job due must therefore send a
// hint with exactly the job's time.
func TestHintsHaveTheTimesOfJobs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, r := t.Context(), testRunner(t, d)
		q, now := r.q, d.Now()
		var mu sync.Mutex
		hints := map[int64]bool{}
		d.OnHint(hintTopic, func(p string) {
			kind, lane, at, ok := parseHint(p)
			mu.Lock()
			defer mu.Unlock()
			hints[at] = ok && kind == "k" && lane == "l"
		})
		in := func(f func(tx *db.Tx, j Job) error) func(Job) error {
			return func(j Job) error { return d.Update(ctx, func(tx *db.Tx) error { return f(tx, j) }) }
		}
		verb := func(f func(tx *db.Tx, j Job)) func(Job) error {
			return in(func(tx *db.Tx, j Job) error { f(tx, j); return nil })
		}
		parked := `UPDATE jobs SET parked = TRUE, run_at = $1, holder = NULL`
		for _, c := range []struct {
			name  string
			state string // statement that prepares the claimed job; $1 is the time for jobs that wait for nothing
			act   func(j Job) error
		}{
			{"Insert", `DELETE FROM jobs WHERE run_at = $1`, verb(func(tx *db.Tx, j Job) {
				q.Insert(ctx, tx, New{Kind: "k", Lane: "l"})
			})},
			{"Insert at a time", `DELETE FROM jobs WHERE run_at = $1`, verb(func(tx *db.Tx, j Job) {
				q.Insert(ctx, tx, New{Kind: "k", Lane: "l", RunAt: now.Add(-2 * slack)})
			})},
			{"Insert of a parked job", parked, verb(func(tx *db.Tx, j Job) {
				q.Insert(ctx, tx, New{Kind: "k", Lane: "l", Dedupe: "d"})
			})},
			{"Retry", "", verb(func(tx *db.Tx, j Job) { q.Retry(ctx, tx, j, now.Add(time.Hour), "why") })},
			{"Wait", "", verb(func(tx *db.Tx, j Job) { q.Wait(ctx, tx, j, now.Add(-2*slack), "why") })},
			{"fail", "", verb(func(tx *db.Tx, j Job) { q.fail(ctx, tx, j, now.Add(time.Second), "why") })},
			{"Move", parked, in(func(tx *db.Tx, j Job) error {
				_, err := q.Move(ctx, tx, "k", "", "l", "d", now.Add(time.Minute))
				return err
			})},
			{"Unpark", parked, func(j Job) error { return q.Unpark(ctx, j.ID) }},
			{"HoldUntil", "", verb(func(tx *db.Tx, j Job) { q.HoldUntil(ctx, tx, j, "key", now.Add(time.Hour), "why") })},
			{"Release", `UPDATE jobs SET held = 'key', run_at = $1, holder = NULL`, in(func(tx *db.Tx, j Job) error {
				_, err := q.Release(ctx, tx, "key")
				return err
			})},
			{"giveBack", "", func(j Job) error { r.giveBack(ctx, j); return nil }},
			{"end", "", func(Job) error { return r.end() }},
			{"declareDead", `UPDATE jobs SET holder = id, run_at = $1`, func(j Job) error {
				exec(t, d, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, 5, 0)`, db.ID(j.ID))
				r.declareDead(ctx, j.ID, 5)
				return nil
			}},
		} {
			exec(t, d, `DELETE FROM jobs`)
			insert(t, d, New{Kind: "k", Lane: "l", Dedupe: "d"})
			exec(t, d, `UPDATE jobs SET run_at = $1, holder = $2, attempt = 1`, int64(inHand), db.ID(r.node))
			j := Job{Kind: "k", Lane: "l", Attempt: 1}
			if err := d.QueryRow(ctx, `SELECT id FROM jobs`).Scan((*db.ID)(&j.ID)); err != nil {
				t.Fatal(err)
			}
			if c.state != "" {
				exec(t, d, c.state, int64(inHand))
			}
			mu.Lock()
			clear(hints)
			mu.Unlock()
			if err := c.act(j); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
			var at int64
			if err := d.QueryRow(ctx, `SELECT run_at FROM jobs`).Scan(&at); err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			if !hints[at] || len(hints) != 1 {
				t.Errorf("after %s the job is due at %d, and there are hints for %v", c.name, at, hints)
			}
			mu.Unlock()
		}
	})
}

// A lane that is already ready is claimed from the earliest time that was heard of, also if a claim fails in between.
func TestClaimsBeginAtTheEarliestTime(t *testing.T) {
	d := dbtest.SQLite(t)
	r := testRunner(t, d)
	k := newDispatcher(r, Kind{Workers: 8, PerLane: 8})
	k.exact, k.Owner, k.Group = true, func(lane string) string { return lane }, func(lane string) string { return lane }
	k.Bulk = func(string) bool { return false }
	for _, at := range []int64{5, 3, 9} {
		k.enqueue("l", at)
	}
	asks := k.plan()
	if len(asks) != 1 || asks[0].from != 3 {
		t.Fatalf("asks %+v", asks)
	}
	k.workers.Release("l", int64(asks[0].n))
	k.enqueue("l", 7)
	if asks = k.plan(); len(asks) != 1 || asks[0].from != 3 {
		t.Fatalf("after a claim without an answer it asks %+v", asks)
	}
}

// The next claim from a lane requests more jobs after a full claim, and about as many as the last claim after others.
// The number is remembered for a limited number of lanes.
func TestSizeOfTheNextClaim(t *testing.T) {
	for _, c := range []struct {
		asked, got int
		left       bool
		want       int
	}{
		{2, 2, true, 8}, {2, 2, false, 8}, {8, 8, true, laneTurn}, {laneTurn, laneTurn, true, laneTurn}, {2, 1, true, 8},
		{8, 6, false, 8}, {8, 3, false, 5}, {laneTurn, laneTurn - 1, false, laneTurn}, {8, 1, false, 0}, {2, 0, false, 0},
		{2, 0, true, 0},
	} {
		k := newDispatcher(nil, Kind{Workers: 100})
		k.deep["l"] = 7
		if k.adapt(ask{lane: "l", n: c.asked}, c.got, c.left); k.deep["l"] != c.want {
			t.Errorf("after %d of %d jobs, others left: %v, the next claim asks for %d, want %d", c.got, c.asked, c.left,
				k.deep["l"], c.want)
		}
	}
	k := newDispatcher(nil, Kind{Workers: 100})
	for i := range 2 * deepMax {
		k.adapt(ask{lane: fmt.Sprint(i), n: 2}, 2, false)
	}
	if len(k.deep) > deepMax {
		t.Errorf("%d lanes are remembered", len(k.deep))
	}
}

// A transaction that inserts a job may commit after later jobs in the lane have been claimed.
func TestLateCommits(t *testing.T) {
	d := dbtest.Postgres(t)
	r := testRunner(t, d)
	r.scans = time.Hour
	got := make(chan string, 10)
	r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
		defer func() { got <- j.Payload }()
		return r.q.End(ctx, j)
	}})
	defer start(t, r)()
	insert(t, d, New{Kind: "k", Lane: "l", Payload: "first"})
	<-got // the first scan has ended or will find an empty lane
	inserted, free, gone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		gone <- d.Update(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
			r.q.Insert(t.Context(), tx, New{Kind: "k", Lane: "l", Payload: "late"})
			_, err := tx.Exec(t.Context(), `SELECT 1`)
			close(inserted)
			<-free
			return err
		})
	}()
	<-inserted
	for i := range 3 {
		insert(t, d, New{Kind: "k", Lane: "l", Payload: fmt.Sprint(i)})
		if j := <-got; j != fmt.Sprint(i) {
			t.Fatalf("job %s ran, want %d", j, i)
		}
	}
	close(free)
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if j := <-got; j != "late" {
		t.Errorf("job %s ran", j)
	}
}

// A job that another transaction has locked, and that is due before other jobs of its lane, runs once it is free.
func TestLockedJobBeforeOthersOfItsLane(t *testing.T) {
	d := dbtest.Postgres(t)
	r := testRunner(t, d)
	r.scans = time.Hour
	got := make(chan string, 10)
	r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
		defer func() { got <- j.Payload }()
		return r.q.End(ctx, j)
	}})
	insert(t, d, New{Kind: "k", Lane: "l", Payload: "locked"})
	locked, free, gone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		gone <- d.Update(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT 1 FROM jobs FOR UPDATE`)
			close(locked)
			<-free
			return err
		})
	}()
	<-locked
	defer start(t, r)()
	for i := range 5 {
		insert(t, d, New{Kind: "k", Lane: "l", Payload: fmt.Sprint(i)})
		<-got
	}
	close(free)
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if j := <-got; j != "locked" {
		t.Errorf("job %s ran", j)
	}
}

// A job without a hint, due before the time from which claims read its lane, is found by a scan.
func TestScansFindEarlierJobs(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := testRunner(t, d)
		r.scans = time.Hour
		got := make(chan string, 100)
		r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
			defer func() { got <- j.Payload }()
			return r.q.End(ctx, j)
		}})
		defer start(t, r)()
		insert(t, d, New{Kind: "k", Lane: "l", Payload: "0"})
		<-got
		exec(t, d, `INSERT INTO jobs (id, kind, lane, team_id, dedupe, payload, run_at, attempt, holder, parked, last_error,
			created_at) VALUES ($1, 'k', 'l', NULL, '', 'early', 1, 0, NULL, FALSE, '', 0)`, db.ID(dbtest.ID("x")))
		insert(t, d, New{Kind: "k", Lane: "l", Payload: "1"})
		r.kinds[0].restart() // as after a step of the clock
		for range 2 {
			<-got
		}
	})
}

// After a lost connection to PostgreSQL, all lanes are scanned, because hints may have been lost.
func TestScanAfterAReconnect(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	r := testRunner(t, d)
	r.Handle(Kind{Name: "k"})
	r.running.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.Run(ctx)
	}()
	<-r.kinds[0].look
	proxy.Cut()
	<-r.kinds[0].look
	cancel()
	<-ended
}

// Two nodes run the same lanes, and jobs end their attempts in different ways. No job depends on a scan.
func TestHintsFindAllJobs(t *testing.T) {
	const lanes, producers, each = 3, 6, 40
	url := dbtest.PostgresURL(t)
	var ended sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer ended.Wait()
	defer cancel()
	var done atomic.Int64
	all := make(chan struct{})
	var databases []*db.DB
	for range 2 {
		d := dbtest.Open(t, url)
		databases = append(databases, d)
		r := testRunner(t, d)
		r.scans = time.Hour
		r.Handle(Kind{Name: "k", Workers: 4, Handle: func(ctx context.Context, j Job) error {
			if j.Attempt == 1 && j.Payload == "3" {
				return ErrUnsure
			}
			var err error
			end := j.Attempt > 1 || j.Payload == "0"
			err = d.Update(ctx, func(tx *db.Tx) error {
				switch {
				case end:
					r.q.Finish(ctx, tx, j)
				case j.Payload == "1":
					r.q.Retry(ctx, tx, j, tx.Now(), "")
				case j.Payload == "2":
					r.q.Wait(ctx, tx, j, tx.Now().Add(time.Millisecond), "")
				default:
					r.q.Hold(ctx, tx, j, "key")
				}
				return nil
			})
			if err == nil && end && done.Add(1) == producers*each {
				close(all)
			}
			return err
		}})
		listening := make(chan struct{}, 1)
		d.OnListening(func() { listening <- struct{}{} })
		ended.Go(func() { d.Run(ctx) })
		<-listening
		ended.Go(func() {
			if err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var producing sync.WaitGroup
	for p := range producers {
		producing.Go(func() {
			d := databases[p%2]
			for range each {
				if err := d.Update(ctx, func(tx *db.Tx) error {
					NewQueue(d).Insert(ctx, tx, New{Kind: "k", Lane: fmt.Sprint(rand.IntN(lanes)), Payload: fmt.Sprint(rand.IntN(5))})
					// The next round trip makes the transaction slower than others, which then overtake it.
					_, err := tx.Exec(ctx, `SELECT 1`)
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	limit := time.After(60 * time.Second)
	for {
		select {
		case <-all:
			producing.Wait()
			return
		case <-limit:
			t.Fatalf("%d of %d jobs have ended", done.Load(), producers*each)
		default:
		}
		if err := databases[0].Update(ctx, func(tx *db.Tx) error {
			_, err := NewQueue(databases[0]).Release(ctx, tx, "key")
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}
