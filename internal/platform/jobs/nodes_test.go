package jobs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestJudge checks which nodes are considered dead by a node that reads heartbeats every two seconds.
func TestJudge(t *testing.T) {
	t.Parallel()
	type look struct {
		at    int // seconds
		beats map[string]int64
		dead  []string
	}
	still := map[string]int64{"a": 7, "me": 1}
	for _, tc := range []struct {
		name  string
		looks func() []look
	}{
		{"a heart that stands still", func() (all []look) {
			for at := 0; at <= 20; at += 2 {
				all = append(all, look{at, still, nil})
			}
			return append(all, look{22, still, []string{"a"}})
		}},
		{"hearts that beat", func() (all []look) {
			for at := 0; at < 100; at += 2 {
				all = append(all, look{at, map[string]int64{"a": int64(at), "me": int64(at)}, nil})
			}
			return all
		}},
		{"a node seen for the first time", func() []look {
			return []look{{0, map[string]int64{"me": 1}, nil}, {2, still, nil}, {4, still, nil}}
		}},
		{"the database was away, so nobody could beat", func() []look {
			return []look{{0, still, nil}, {2, still, nil}, {62, still, nil}, {64, still, nil}, {72, still, nil},
				{82, still, nil},
				{84, still, []string{"a"}}}
		}},
		{"nobody takes himself for dead", func() (all []look) {
			for at := 0; at < 100; at += 2 {
				all = append(all, look{at, map[string]int64{"me": 1}, nil})
			}
			return all
		}},
	} {
		start := time.Now()
		w := watcher{r: &Runner{node: "me"}, pulse: normalPulse, known: map[string]seen{}}
		for _, l := range tc.looks() {
			if dead := w.judge(l.beats, start.Add(time.Duration(l.at)*time.Second)); !slices.Equal(dead, l.dead) {
				t.Errorf("%s: after %d s %q are dead, want %q", tc.name, l.at, dead, l.dead)
			}
		}
	}
}

// TestSure checks the results of Sure on a node that loses contact with the database and is declared dead.
func TestSure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopping := make(chan struct{})
		var held atomic.Bool
		begin := func(alone bool) *life {
			ctx, end := context.WithCancelCause(context.Background())
			return &life{alone: alone, sure: normalPulse.sure, stopping: stopping, held: &held, ctx: ctx, end: end,
				beatAt: time.Now(), beat: make(chan struct{})}
		}
		l, alone := begin(false), begin(true)
		j := Job{life: l}
		sure := func(what string, want error) {
			t.Helper()
			if err := j.Sure(t.Context()); !errors.Is(err, want) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		sure("after a beat", nil)
		time.Sleep(11 * time.Second)
		sure("11 s after a beat", nil)
		time.Sleep(time.Second)
		began := time.Now()
		time.AfterFunc(5*time.Second, func() { l.lives(time.Now()) })
		sure("12 s after a beat, with another to come", nil)
		if waited := time.Since(began); waited != 5*time.Second {
			t.Errorf("it waited for %v, not for the beat", waited)
		}
		time.Sleep(time.Minute)
		sure("without a beat", ErrUnsure)
		l.lives(time.Now().Add(-time.Minute))
		time.AfterFunc(time.Second, func() { l.end(ErrLost) })
		sure("taken for dead while it waits", ErrLost)
		l.lives(time.Now())
		sure("taken for dead before", ErrLost)

		j = Job{life: alone}
		sure("alone, an hour after its only beat", nil)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (Job{life: begin(false)}).Sure(gone); err != nil {
			t.Errorf("a job whose context ended is %v, but certainly this worker's", err)
		}
		held.Store(true)
		sure("while the runner is paused", ErrUnsure)
		close(stopping)
		sure("when stopping", ErrStopping)
	})
}

func testRunner(t *testing.T, d *db.DB) *Runner {
	t.Helper()
	r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
	r.pulse = pulse{every: 20 * time.Millisecond, sure: 20 * time.Second, dead: time.Second}
	return r
}

func start(t *testing.T, r *Runner) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return stop
}

func insert(t *testing.T, d *db.DB, all ...New) {
	t.Helper()
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		NewQueue(d).Insert(t.Context(), tx,
			all...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

func exec(t *testing.T, d *db.DB, text string, args ...any) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), text, args...)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestDeadNodesLoseTheirJobs checks that a killed node loses its jobs. A live node whose clock is slow keeps its jobs,
// although its claims look too old.
func TestDeadNodesLoseTheirJobs(t *testing.T) {
	d := dbtest.Postgres(t)
	insert(t, d, New{Kind: "k", Lane: "l", Payload: "of the dead"}, New{Kind: "k", Lane: "l", Payload: "of the living"})
	for _, node := range []string{"of the dead", "of the living"} {
		exec(t, d, `UPDATE jobs SET holder = $1, attempt = 1, run_at = 1 WHERE payload = $2`, db.ID(dbtest.ID(node)), node)
		exec(t, d, `INSERT INTO nodes (id, beat, started_at) VALUES ($1, 5, 0)`, db.ID(dbtest.ID(node)))
	}
	r := testRunner(t, d)
	got := make(chan Job, 10)
	r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
		got <- j
		return r.q.End(ctx, j)
	}})
	beating, enough := context.WithCancel(t.Context())
	beaten := make(chan struct{})
	go func() {
		defer close(beaten)
		for beating.Err() == nil {
			d.Update(beating, func(tx *db.Tx) error {
				_, err := tx.Exec(beating, `UPDATE nodes SET beat = beat + 1 WHERE id = $1`,
					db.ID(dbtest.ID("of the living")))
				return err
			})
		}
	}()
	stop := start(t, r)
	j := <-got
	if j.Payload != "of the dead" || j.Attempt != 2 {
		t.Errorf("took over %+v", j)
	}
	insert(t, d, New{Kind: "k", Lane: "l", Payload: "new"})
	if j := <-got; j.Payload != "new" {
		t.Errorf("then did %+v", j)
	}
	stop()
	enough()
	<-beaten
	var holder string
	if err := d.QueryRow(t.Context(), `SELECT holder FROM jobs`).Scan((*db.ID)(&holder)); err != nil ||
		holder != dbtest.ID("of the living") {
		t.Errorf("the other job is held by %q, %v", holder, err)
	}
}

// TestNodeDeclaredDeadFindsOut checks that a live node notices that it was declared dead.
func TestNodeDeclaredDeadFindsOut(t *testing.T) {
	d := dbtest.Postgres(t)
	r := testRunner(t, d)
	begun, lost := make(chan Job, 10), make(chan struct{})
	r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
		if j.Payload == "first" {
			begun <- j
			defer close(lost)
			<-ctx.Done()
			if err := j.Sure(context.WithoutCancel(ctx)); !errors.Is(err, ErrLost) || !errors.Is(context.Cause(ctx), ErrLost) {
				t.Errorf("the job is lost, but it is %v, and its context ended because of %v", err, context.Cause(ctx))
			}
			return context.Cause(ctx)
		}
		if err := j.Sure(ctx); err != nil {
			t.Errorf("a job of its next life: %v", err)
		}
		begun <- j
		return r.q.End(ctx, j)
	}})
	insert(t, d, New{Kind: "k", Payload: "first"})
	stop := start(t, r)
	j := <-begun
	exec(t, d, `WITH buried AS (DELETE FROM nodes) UPDATE jobs SET run_at = 0, holder = $1, attempt = attempt + 1`,
		db.ID(dbtest.ID("another")))
	<-lost
	insert(t, d, New{Kind: "k", Payload: "second"})
	<-begun
	stop()
	var holder string
	var attempt int
	if err := d.QueryRow(t.Context(), `SELECT holder, attempt FROM jobs WHERE id = $1`, db.ID(j.ID)).Scan(
		(*db.ID)(&holder), &attempt); err != nil || holder != dbtest.ID("another") || attempt != 2 {
		t.Errorf("the lost job is held by %q, attempt %d, %v", holder, attempt, err)
	}
}

// TestHeartWaitsForNoWork checks that heartbeats continue while all connections are in use and the release of jobs is
// pending.
func TestHeartWaitsForNoWork(t *testing.T) {
	url := dbtest.PostgresURL(t)
	d, beside := dbtest.Open(t, url), dbtest.Open(t, url)
	r := testRunner(t, d)
	stop := start(t, r)
	beat := func() (n int64) {
		t.Helper()
		if err := beside.QueryRow(t.Context(), `SELECT COALESCE(MAX(beat), 0) FROM nodes`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	await := func(n int64) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); beat() < n; {
			if time.Now().After(deadline) {
				t.Fatalf("%d beats, want %d", beat(), n)
			}
		}
	}
	await(1)
	const connections = 6 // number of connections that dbtest.Open opens
	taken, enough := make(chan struct{}, connections), make(chan struct{})
	var holders sync.WaitGroup
	release := sync.OnceFunc(func() {
		close(enough)
		holders.Wait()
	})
	defer release()
	for range connections {
		holders.Go(func() {
			d.Update(t.Context(), func(*db.Tx) error {
				taken <- struct{}{}
				<-enough
				return nil
			})
		})
	}
	for range connections {
		<-taken
	}
	r.mu.Lock()
	for range 100 {
		r.owed = append(r.owed, Job{ID: id.New()})
	}
	r.mu.Unlock()
	await(beat() + 20)
	release()
	stop()
}

// TestStopBeforeTheBeginning stops a runner before it starts. If the runner is stopped before it starts, Run returns no
// error.
func TestStopBeforeTheBeginning(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := testRunner(t, d).Run(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestStoppingBeginsNothing stops a node while a handler prepares its work, and checks that the job becomes due again
// without other changes.
func TestStoppingBeginsNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := testRunner(t, d)
		begun, went := make(chan struct{}), make(chan struct{})
		r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
			close(begun)
			<-went
			err := j.Sure(ctx)
			if !errors.Is(err, ErrStopping) {
				t.Errorf("a job that is not begun: %v", err)
			}
			return err
		}})
		insert(t, d, New{Kind: "k"})
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		<-begun
		cancel()
		close(went)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var holder string
		var tries, failures, runAt int64
		err := d.QueryRow(t.Context(), `SELECT holder, tries, failures, run_at FROM jobs`).Scan((*db.ID)(&holder), &tries,
			&failures, &runAt)
		if err != nil || holder != "" || tries+failures != 0 || runAt > d.Now().UnixMicro() {
			t.Errorf("the job is held by %q, with %d tries, %d failures, due at %d: %v", holder, tries, failures, runAt, err)
		}
	})
}

// TestUnnoticedClaims loses the answer to a successful claim, so that the node holds a job that no worker runs.
func TestUnnoticedClaims(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		r := testRunner(t, d)
		got := make(chan Job, 10)
		r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
			if j.Payload == "mark" {
				// At this time the loop is between two claims, or in a claim that first calls releaseClaims.
				exec(t, d, `UPDATE jobs SET holder = $1, attempt = 1, run_at = $2 WHERE payload = 'claimed'`,
					db.ID(r.node), int64(inHand))
				r.kinds[0].doubt.Store(true)
				insert(t, d, New{Kind: "k", Lane: "l"})
			}
			got <- j
			return r.q.End(ctx, j)
		}})
		insert(t, d, New{Kind: "k", Lane: "l", Payload: "claimed", RunAt: d.Now().Add(time.Hour)},
			New{Kind: "k", Lane: "l", Payload: "mark"})
		stop := start(t, r)
		defer stop()
		for j := range got {
			if j.Payload == "claimed" {
				if j.Attempt != 2 {
					t.Errorf("attempt %d", j.Attempt)
				}
				return
			}
		}
	})
}

// TestClockSteppedBack sets the clock back by ten hours. After the clock steps back, waits still have their intended
// length, and a time that a caller chose does not change.
func TestClockSteppedBack(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		now := d.Now()
		later := now.Add(10 * time.Hour)
		insert(t, d, New{Kind: "other", Lane: "at once"}, New{Kind: "other", Lane: "waits"},
			New{Kind: "other", Lane: "parked"},
			New{Kind: "other", Lane: "chosen", RunAt: later.Add(time.Minute)}, New{Kind: "other", Lane: "before"})
		exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2 WHERE lane = 'at once'`, later.Add(-slack).UnixMicro(),
			later.UnixMicro())
		exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2 WHERE lane = 'waits'`, later.Add(time.Hour).UnixMicro(),
			later.UnixMicro())
		exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2, parked = TRUE WHERE lane = 'parked'`, int64(never),
			later.UnixMicro())
		exec(t, d, `UPDATE jobs SET run_at = $1 WHERE lane = 'before'`, now.Add(30*time.Hour).UnixMicro())
		stop := start(t, testRunner(t, d))
		for mended := false; !mended; {
			if err := d.QueryRow(t.Context(), `SELECT run_at < $1 FROM jobs WHERE lane = 'waits'`,
				later.UnixMicro()).Scan(&mended); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		for lane, want := range map[string]time.Time{"at once": now.Add(-slack), "waits": now.Add(time.Hour),
			"chosen": later.Add(time.Minute),
			"before": now.Add(30 * time.Hour)} {
			var at int64
			if err := d.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE lane = $1`, lane).Scan(&at); err != nil {
				t.Fatal(err)
			}
			if off := time.UnixMicro(at).Sub(want); off < 0 || off > time.Minute {
				t.Errorf("%q is due at %v, want %v", lane, time.UnixMicro(at), want)
			}
		}
		// A running node also notices when the clock is set back.
		r := testRunner(t, d)
		c := stepper{wall: d.Now().Add(time.Hour), at: time.Now()}
		exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2 WHERE lane = 'waits'`, later.Add(time.Hour).UnixMicro(),
			later.UnixMicro())
		r.watchClock(t.Context(), &c)
		var at int64
		if err := d.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE lane = 'waits'`).Scan(&at); err != nil ||
			at > now.Add(2*time.Hour).UnixMicro() {
			t.Errorf("after a step the job is due at %v, %v", time.UnixMicro(at), err)
		}
	})
}

// TestNodeDeclaredDeadClaimsNothing checks a claim by a node that was declared dead but has not noticed. A claim by
// such a node must fail, because no other node would release the claimed jobs if the node died.
func TestNodeDeclaredDeadClaimsNothing(t *testing.T) {
	d := dbtest.Postgres(t)
	dead, alive := testRunner(t, d), testRunner(t, d)
	dead.pulse.every = time.Hour
	got := make(chan *Runner, 10)
	for _, r := range []*Runner{dead, alive} {
		r.Handle(Kind{Name: "k", Handle: func(ctx context.Context, j Job) error {
			got <- r
			return r.q.End(ctx, j)
		}})
	}
	defer start(t, dead)()
	insert(t, d, New{Kind: "k"})
	if <-got != dead {
		t.Fatal("another than the only node did the job")
	}
	// The first heartbeat must not follow the deletion, because the node would register again.
	for n := 1; n > 0; { // waits until the job's end is recorded
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) + (SELECT COUNT(*) FROM nodes WHERE beat = 0)
			FROM jobs`).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
	exec(t, d, `DELETE FROM nodes`)
	for range 10 {
		insert(t, d, New{Kind: "k"})
	}
	for deadline := time.Now().Add(30 * time.Second); !dead.kinds[0].doubt.Load(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the dead node did not try to claim a job")
		}
	}
	var held int
	if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE holder IS NOT NULL`).Scan(&held); err != nil ||
		held > 0 || len(got) > 0 {
		t.Errorf("the dead node holds %d jobs and did %d, %v", held, len(got), err)
	}
	// A second node starts and announces itself. The first node then learns that it was declared dead and registers again,
	// and both nodes may work.
	defer start(t, alive)()
	for range 10 {
		<-got
	}
}

// TestClaimDuringDeclaredDead makes a node claim a job while another node declares it dead. In a race between a claim
// and declareDead, either the job becomes due again or the claim fails.
func TestClaimDuringDeclaredDead(t *testing.T) {
	d := dbtest.Postgres(t)
	dead, other := testRunner(t, d), testRunner(t, d)
	dead.Handle(Kind{Name: "k", Handle: func(context.Context, Job) error { return nil }})
	if err := dead.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, d, New{Kind: "k", Lane: "held"}, New{Kind: "k", Lane: "free"})
	exec(t, d, `UPDATE jobs SET holder = $1 WHERE lane = 'held'`, db.ID(dead.node))
	locked, free := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		d.Update(t.Context(), func(tx *db.Tx) error {
			tx.Exec(t.Context(), `UPDATE jobs SET payload = 'locked' WHERE lane = 'held'`)
			close(locked)
			<-free
			return nil
		})
	})
	<-locked
	wg.Go(func() { other.declareDead(t.Context(), dead.node, 0) })
	waits := func() (n int) {
		t.Helper()
		if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND datname = current_database()`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for waits() == 0 { // wait until declareDead has begun and waits for the lock
	}
	workers := newCrew()
	claimed := make(chan error, 1)
	go func() {
		claimed <- dead.kinds[0].claim(t.Context(), t.Context(), []ask{{"free", "free", "free", false, 1, 0}}, workers)
	}()
	for waits() == 1 && len(claimed) == 0 { // wait until the claim also waits for the lock, or has ended
	}
	close(free)
	wg.Wait()
	err := <-claimed
	workers.end()
	var held int
	if e := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE holder IS NOT NULL`).
		Scan(&held); e != nil || held != 0 {
		t.Errorf("after the burial %d jobs are held by nobody, %v; the claim said %v", held, e, err)
	}
}

// TestFrozenNodeIsDeclaredDead stops a node, or its network, during transactions that hold locks needed by declareDead.
// The PostgreSQL server does not detect that the frozen node is unreachable.
func TestFrozenNodeIsDeclaredDead(t *testing.T) {
	url := dbtest.PostgresURL(t)
	proxy := dbtest.ProxyTo(t, url)
	beside := dbtest.Open(t, url)
	d, err := db.Open(t.Context(), dbtest.Through(proxy, db.Options{Patience: time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	frozen, other := testRunner(t, d), testRunner(t, beside)
	if err := frozen.begin(t.Context()); err != nil {
		t.Fatal(err)
	}
	insert(t, beside, New{Kind: "k"}, New{Kind: "k"})
	exec(t, beside, `UPDATE jobs SET holder = $1, attempt = 1`, db.ID(frozen.node))
	locked, thaw := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(thaw)
	for _, lock := range []func(*db.Tx) error{
		func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE nodes SET beat = 7 WHERE id = $1`, db.ID(frozen.node))
			return err
		},
		func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `DELETE FROM jobs WHERE id = (SELECT id FROM jobs ORDER BY id LIMIT 1)`)
			return err
		},
		func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET payload = 'p' WHERE id = (SELECT id FROM jobs
				ORDER BY id DESC LIMIT 1)`)
			return err
		},
	} {
		wg.Go(func() {
			d.Update(t.Context(), func(tx *db.Tx) error {
				err := lock(tx)
				locked <- struct{}{}
				<-thaw
				return err
			})
		})
		<-locked
	}
	proxy.Hang()
	defer proxy.Pass()
	began := time.Now()
	other.declareDead(t.Context(), frozen.node, 0)
	var free int
	if err := beside.QueryRow(t.Context(), `SELECT COUNT(*) FROM jobs WHERE holder IS NULL`).Scan(&free); err != nil ||
		free != 2 {
		t.Errorf("after %v %d jobs are due again, %v; want 2", time.Since(began), free, err)
	}
}
