package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A single owner may use a group's whole limit. All owners together may use twice the limit. Each additional owner gets
// half of the slots that the other owners leave free, but at least one. Limits that end at a known time, and limits for
// kinds without owners, are never exceeded.
func TestRoomInAGroup(t *testing.T) {
	for _, c := range []struct {
		limit, total, own int
		owners            int // expected result of available for a kind with owners
	}{
		{8, 0, 0, 8}, {8, 4, 4, 4}, {8, 7, 7, 1}, {8, 8, 8, 0}, {8, 8, 0, 4}, {8, 12, 4, 0}, {8, 12, 0, 2}, {8, 14, 0, 1},
		{8, 15, 0, 1},
		{8, 16, 0, 0}, {1, 0, 0, 1}, {1, 1, 0, 1}, {1, 1, 1, 0}, {1, 2, 0, 0}, {0, 0, 0, 0},
	} {
		k := newDispatcher(nil, Kind{Workers: 100})
		if got := k.available(c.limit, time.Time{}, c.total, c.own); got != c.owners {
			t.Errorf("of %d, with %d in hand and %d of the owner, there is room for %d, want %d", c.limit, c.total, c.own, got,
				c.owners)
		}
		if got := k.available(c.limit, time.Now(), c.total, c.own); got != c.limit-c.total {
			t.Errorf("of %d for a time, with %d in hand, there is room for %d", c.limit, c.total, got)
		}
		k.exact = true
		if got := k.available(c.limit, time.Time{}, c.total, c.own); got != c.limit-c.total {
			t.Errorf("of %d without owners, with %d in hand, there is room for %d", c.limit, c.total, got)
		}
	}
}

// Bulk jobs leave a quarter of the workers free, but at least one worker.
func TestReserve(t *testing.T) {
	for n, want := range map[int]int{0: 0, 1: 0, 2: 1, 3: 1, 4: 1, 7: 1, 8: 2, 100: 25} {
		if got := reserve(n); got != want {
			t.Errorf("of %d places %d are left", n, got)
		}
	}
	k := newDispatcher(nil, Kind{Workers: 8}) // a single owner may use 7 of 8 workers
	k.workers.TryAcquire("a", 2)
	k.bulk.add(share{"a", "g"}, 1)
	for planned, want := range []int{5, 4, 3} { // of 7 workers, 1 stays free and 1 is in use
		if got := k.bulkRoom("a", planned); got != want {
			t.Errorf("with %d planned there is room for %d of bulk, want %d", planned, got, want)
		}
	}
	k.workers.TryAcquire("a", 4)
	if got := k.bulkRoom("a", 0); got != 1 {
		t.Errorf("with six in hand there is room for %d of bulk", got)
	}
	k.bulk.add(share{"a", "g"}, -1)
	if len(k.bulk.groups)+len(k.bulk.owners)+len(k.bulk.shares) != 0 {
		t.Errorf("what has ended is counted: %+v", k.bulk)
	}
}

// TestBoundOfAGroup checks how many workers an owner may use for one group. If the owner has no other group, the bound
// is half of its workers; otherwise, it is a fifth of its free workers. All groups in doubt together may use three
// quarters of the owner's workers, and stuck groups may use a quarter of those.
func TestBoundOfAGroup(t *testing.T) {
	for _, c := range []struct {
		name        string
		most        int
		doubt       Doubt
		others, own int // running jobs in other groups, whose Doubt is Sure, and in this group
		sure        Doubt
		want        int
	}{
		{"alone", 100, Sure, 0, 0, Sure, 28},
		{"alone, with some in hand", 100, Sure, 0, 20, Sure, 8},
		{"alone, with half", 100, Sure, 0, 28, Sure, 0},
		{"its own bound", 5, Sure, 0, 2, Sure, 3},
		{"beside others", 100, Sure, 10, 0, Sure, 9},
		{"beside others, with some in hand", 100, Sure, 10, 5, Sure, 4},
		{"beside so many that nothing is even", 100, Sure, 55, 0, Sure, 1},
		{"in doubt, alone", 100, Unknown, 0, 0, Sure, 28},
		{"in doubt, beside others in doubt", 100, Unknown, 40, 0, Unknown, 2},
		{"in doubt, beside as many as may be", 100, Unknown, 42, 0, Unknown, 0},
		{"in doubt, beside others that are sure", 100, Unknown, 40, 0, Sure, 3},
		{"stuck, alone", 100, Stuck, 0, 0, Sure, 10},
		{"stuck, beside some that are", 100, Stuck, 8, 0, Stuck, 2},
		{"stuck, beside as many as may be", 100, Stuck, 10, 0, Stuck, 0},
		{"stuck, beside some in doubt", 100, Stuck, 8, 0, Unknown, 9},
		{"nothing is asked", 0, Sure, 0, 0, Sure, 0},
	} {
		k := newDispatcher(nil, Kind{Workers: 64, Share: func(group, owner string) Share {
			if group == "other" {
				return Share{100, c.sure}
			}
			return Share{c.most, c.doubt}
		}}) // a single owner may use 56 of 64 workers
		k.workers.TryAcquire("o", int64(c.others+c.own))
		k.shares[share{"o", "other"}], k.shares[share{"o", "g"}] = c.others, c.own
		k.shares[share{"another", "other"}] = 50
		d := doubts{k: k}
		n, doubt := d.bound(200, share{"o", "g"}, c.own)
		if max(n, 0) != c.want || doubt != c.doubt {
			t.Errorf("%s: %d, %v; want %d", c.name, n, doubt, c.want)
		}
	}
	k := newDispatcher(nil, Kind{Workers: 64})
	d := doubts{k: k}
	if n, doubt := d.bound(200, share{"o", "g"}, 0); n != 200 || doubt != Sure {
		t.Errorf("without a Share: %d, %v", n, doubt)
	}
	k.Share = func(string, string) Share { return Share{100, Unknown} }
	if n, doubt := d.bound(0, share{"o", "g"}, 0); n != 0 || doubt != Sure {
		t.Errorf("of nothing: %d, %v", n, doubt)
	}
	d.add("o", Unknown, 40)
	d.add("o", Stuck, 1)
	d.add("o", Sure, 100)
	if n, _ := d.bound(200, share{"o", "g"}, 0); n != 1 {
		t.Errorf("with 41 planned: %d", n)
	}
}

// Ended jobs are no longer counted, so that held lanes and paused owners continue.
func TestReleaseAndRefill(t *testing.T) {
	k := newDispatcher(nil, Kind{Workers: 8, PerLane: 2, Owner: func(lane string) string { return lane[:1] },
		Bulk: func(lane string) bool {
			return lane[1] == 'b'
		}})
	mine := share{"o", "g"}
	for _, x := range []string{"1", "2"} {
		k.claimed[x] = true
		k.workers.TryAcquire("o", 1)
		k.inHand["g"]++
		k.shares[mine]++
		k.bulk.add(mine, 1)
	}
	k.release(ended{mine, "1", true})
	if !cmp.Equal(k.claimed, map[string]bool{"2": true}) || k.inHand["g"] != 1 || k.shares[mine] != 1 ||
		k.bulk.groups["g"] != 1 ||
		k.workers.Held("o") != 1 || !k.freed["g"] {
		t.Errorf("after one has ended: %+v", k)
	}
	k.hold("g", "o", "of0", false)
	k.hold("g", "o", "of1", false)
	k.hold("g", "o", "of2", false)
	k.release(ended{mine, "2", true})
	if len(k.inHand)+len(k.shares)+len(k.bulk.groups) != 0 {
		t.Errorf("after both have ended: %+v", k)
	}
	k.refill()
	if len(k.freed) != 0 || len(k.held) != 0 || k.ready.empty() { // no running job could free held lanes
		t.Errorf("%d groups are held", len(k.held))
	}
	for range 3 {
		k.ready.first.next()
	}
	k.enqueue("xf", 0)
	k.enqueue("xb", 0)
	k.enqueue("xf", 0) // has no effect, because the lane is already ready
	k.workers.TryAcquire("x", 7)
	k.ready.first.pause()
	k.ready.bulk.pause()
	for n, ready := range []bool{false, true} {
		if k.freed["g"] = true; n == 1 {
			k.workers.Release("x", 2)
		}
		if k.refill(); !k.ready.first.empty() != ready || !k.ready.bulk.empty() != ready {
			t.Errorf("an owner that has its share is ready: %v", !ready)
		}
	}
	if k.ready.first.next(); !k.ready.first.empty() {
		t.Error("a lane is ready twice")
	}
}

// Handle sets unset fields in Kind to their defaults.
func TestKindsByDefault(t *testing.T) {
	r := NewRunner(dbtest.SQLite(t), nil, slog.New(slog.DiscardHandler), time.Second)
	for _, c := range []struct {
		kind             Kind
		workers, perLane int
		lease            time.Duration
	}{
		{Kind{}, 4, 4, 5 * time.Minute},
		{Kind{Workers: 8, PerLane: 8, Lease: time.Second}, 8, 8, time.Second},
		{Kind{Workers: 8, PerLane: 9}, 8, 8, 5 * time.Minute},
		{Kind{Workers: 8, PerLane: 1}, 8, 1, 5 * time.Minute},
	} {
		r.Handle(c.kind)
		k := r.kinds[len(r.kinds)-1]
		if k.Workers != c.workers || k.PerLane != c.perLane || k.Lease != c.lease || !k.exact || k.Owner("l") != "l" ||
			k.Group("l") != "l" || k.Bulk("l") {
			t.Errorf("%+v has %+v", c.kind, k.Kind)
		}
	}
	r.Handle(Kind{Owner: func(string) string { return "o" }, Limit: func(string) (int, time.Time) {
		return 3,
			time.Time{}
	}, PerLane: 2})
	k := r.kinds[len(r.kinds)-1]
	if n, again := k.limit("g"); k.exact || n != 2 || !again.IsZero() {
		t.Errorf("%v, a limit of %d, again at %v", k.exact, n, again)
	}
	k.Limit = func(string) (int, time.Time) { return 1, time.Now().Add(time.Minute) }
	if n, again := k.limit("g"); n != 1 || again.Sub(k.r.d.Now()).Round(time.Second) != time.Minute {
		t.Errorf("a limit of %d, again at %v", n, again)
	}
	for range 1000 {
		if d := Jitter(100); d < 80 || d > 120 {
			t.Fatalf("100 has become %d", d)
		}
	}
}

// After each consecutive error, a job waits for the next delay in its schedule. A job that fails after the last delay
// is parked, unless its kind is Endless.
func TestRetryByTheSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		schedule := []time.Duration{time.Minute, time.Hour}
		for _, c := range []struct {
			failures int // consecutive failures before this one
			endless  bool
			wait     time.Duration // 0 means that the job is parked
		}{{0, false, time.Minute}, {1, false, time.Hour}, {2, false, 0}, {2, true, time.Hour}, {9, true, time.Hour},
			{9, false, 0}} {
			exec(t, d, `DELETE FROM jobs`)
			insert(t, d, New{Kind: "k"})
			j := Job{Kind: "k", Lane: "k", Failures: c.failures}
			if err := d.QueryRow(t.Context(), `SELECT id FROM jobs`).Scan((*db.ID)(&j.ID)); err != nil {
				t.Fatal(err)
			}
			exec(t, d, `UPDATE jobs SET failures = $1`, c.failures)
			if err := r.retry(newDispatcher(r, Kind{Schedule: schedule, Endless: c.endless}), j, errors.New("why")); err != nil {
				t.Fatal(err)
			}
			var at int64
			var failures int
			var parked bool
			if err := d.QueryRow(t.Context(), `SELECT run_at, parked, failures FROM jobs`).Scan(&at, &parked,
				&failures); err != nil {
				t.Fatal(err)
			}
			wait := time.UnixMicro(at).Sub(d.Now())
			if parked != (c.wait == 0) || failures != c.failures+1 || !parked && (wait < c.wait*8/10-time.Microsecond ||
				wait > c.wait*12/10) {
				t.Errorf("after %d failures, endless %v: parked %v, due in %v, %d failures", c.failures, c.endless, parked, wait,
					failures)
			}
		}
	})
}

// The runner treats a clock that goes back by five seconds as having stepped back. A job's wait restarts if it then
// appears to have started more than five seconds in the future.
func TestStepsOfTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		due := func(ahead time.Duration) time.Duration { // sets a one-hour wait that starts in the future
			t.Helper()
			exec(t, d, `DELETE FROM jobs`)
			insert(t, d, New{Kind: "k"})
			set := d.Now().Add(ahead)
			exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2`, set.Add(time.Hour).UnixMicro(), set.UnixMicro())
			return time.Hour + ahead
		}
		for _, c := range []struct {
			step, ahead time.Duration
			mended      bool
		}{{stepMin - time.Microsecond, time.Minute, false}, {stepMin, time.Minute, true}, {time.Hour, time.Minute, true},
			{-time.Hour, time.Minute, false},
			{time.Hour, stepMin, false}, {time.Hour, stepMin + time.Microsecond, true}} {
			wait := due(c.ahead)
			now := stepper{wall: d.Now().Add(c.step), at: time.Now()}
			if r.watchClock(t.Context(), &now); c.mended {
				wait = time.Hour
			}
			var at int64
			if err := d.QueryRow(t.Context(), `SELECT run_at FROM jobs`).Scan(&at); err != nil {
				t.Fatal(err)
			}
			if got := time.UnixMicro(at).Sub(d.Now()); got != wait || !now.wall.Equal(d.Now()) {
				t.Errorf("a step of %v, and a wait that was set %v ahead: due in %v, want %v", c.step, c.ahead, got, wait)
			}
		}
		due(time.Hour)
		before := stepper{wall: d.Now().Add(time.Hour), at: time.Now()}
		now := before
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if r.watchClock(gone, &now); now != before {
			t.Error("a step is forgotten although the jobs could not be mended")
		}
	})
}

// A node that reached the database at every check may declare other nodes dead. A node that lost contact with the
// database for too long may declare nodes dead only after a full observation period.
func TestJudgeAtItsEdges(t *testing.T) {
	p := pulse{every: 2 * time.Second, sure: 12 * time.Second, dead: 20 * time.Second}
	start := time.Now()
	for _, c := range []struct {
		name  string
		looks []time.Duration
		dead  bool // whether node a is considered dead at the last check
	}{
		{"just dead", []time.Duration{0, 10 * time.Second, 20*time.Second + 1}, true},
		{"almost", []time.Duration{0, 10 * time.Second, 20 * time.Second}, false},
		{"a look was missed", []time.Duration{0, 12*time.Second + 1, 24*time.Second + 1}, false},
		{"no look was missed", []time.Duration{0, 12 * time.Second, 24 * time.Second}, true},
	} {
		w := watcher{r: &Runner{node: "me"}, pulse: p, known: map[string]seen{}}
		var dead []string
		for _, at := range c.looks {
			dead = w.judge(map[string]int64{"me": int64(at), "a": 7}, start.Add(at))
		}
		if (len(dead) == 1) != c.dead {
			t.Errorf("%s: %q are dead", c.name, dead)
		}
	}
}

// A scan reads all lanes page by page and records hints for lanes with jobs due soon.
func TestScanOfManyLanes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, n := range []int{scanPage - 1, scanPage, scanPage + 1} {
			exec(t, d, `DELETE FROM jobs`)
			all := []New{{Kind: "other", Lane: "other"}}
			for i := range n {
				all = append(all, New{Kind: "k", Lane: fmt.Sprintf("l%04d", i)})
			}
			all[1].RunAt, all[n].RunAt = d.Now().Add(time.Hour), d.Now().Add(-time.Minute)
			insert(t, d, all...)
			k := newDispatcher(NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second),
				Kind{Name: "k", Workers: 1})
			if asked, err := k.scan(t.Context(), time.Minute, 0); err != nil || asked {
				t.Fatal(asked, err)
			}
			if len(k.hinted) != n-1 || k.hinted["l0000"] != 0 || k.hinted[all[n].Lane] != all[n].RunAt.UnixMicro() {
				t.Errorf("of %d lanes %d are hinted at", n, len(k.hinted))
			}
			select {
			case <-k.kick:
			default:
				t.Error("nobody is woken")
			}
			clear(k.hinted)
			k.rescan()
			if asked, err := k.scan(t.Context(), time.Minute, 1_000_000); err != nil || asked != (n >= scanPage) {
				t.Errorf("asked for a scan at once, of %d lanes: %v, %v", n, asked, err)
			}
			gone, cancel := context.WithCancel(t.Context())
			cancel()
			if _, err := k.scan(gone, time.Minute, 0); err == nil {
				t.Error("a scan that is stopped has ended")
			}
		}
	})
}

// A group with a temporary limit has one timer for all its lanes, and gets a new timer after the clock steps back.
func TestOneAlarmForAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRunner(dbtest.SQLite(t), nil, slog.New(slog.DiscardHandler), time.Second)
		wait := time.Minute
		r.Handle(Kind{Name: "k", PerLane: 4, Group: func(string) string { return "g" },
			Limit: func(string) (int, time.Time) { return 2, time.Now().Add(wait) }})
		k := r.kinds[0]
		k.inHand["g"] = 2
		for i := range 1000 {
			k.hold("g", "o", fmt.Sprint(i), false)
		}
		ended, cancel := context.WithCancel(t.Context()) // with this context, no turn claims jobs
		cancel()
		expect := func(what string, lanes int, alarm time.Duration) {
			t.Helper()
			next := k.turn(ended, nil, nil)
			at, _ := k.limits.soonest()
			ahead := time.UnixMicro(at).Sub(k.r.d.Now()).Round(time.Second)
			if next.Round(time.Second) != alarm || ahead != alarm || len(k.limits.queue) != 1 || len(k.alarms.queue) != 0 {
				t.Errorf("%s: the next turn is in %v, the alarm in %v, of %d", what, next, ahead, len(k.limits.queue))
			}
			if n := len(k.ready.first.lanes["o"]); n != lanes {
				t.Errorf("%s: %d lanes are ready, want %d", what, n, lanes)
			}
		}
		k.freed["g"] = true
		expect("no room", 0, time.Minute)
		k.inHand["g"] = 1
		time.Sleep(time.Minute)
		expect("room for one at the time", 1, time.Minute)
		k.inHand["g"], wait = 2, 40*time.Second // simulates a clock that goes back by 20 seconds
		k.restart()
		if next := k.turn(ended, nil, nil); next.Round(time.Second) != 40*time.Second {
			t.Errorf("after a step of the clock the next turn is in %v", next)
		}
	})
}

// A hint with an earlier time makes a lane's alarm earlier, and a hint with a later time does not delay the lane.
func TestHintsBringForward(t *testing.T) {
	k := newDispatcher(nil, Kind{Workers: 1})
	for _, at := range []int64{5, 7, 3, 3, 4} {
		k.hint("l", at)
	}
	if !maps.Equal(k.hinted, map[string]int64{"l": 3}) {
		t.Errorf("%v", k.hinted)
	}
}

// A cron that fails runs again a minute later, or at its next regular time if that comes first.
func TestCronAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		fails := true
		run := func(context.Context) error {
			if fails {
				return errors.New("a bad day")
			}
			return nil
		}
		r.Cron(Cron{Name: "often", Every: 30 * time.Second, Run: run})
		r.Cron(Cron{Name: "seldom", Every: time.Hour, Run: run})
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			fails bool
			want  [2]time.Duration
		}{{true, [2]time.Duration{30 * time.Second, time.Minute}}, {false, [2]time.Duration{30 * time.Second, time.Hour}}} {
			fails = c.fails
			for i, k := range r.kinds {
				j := Job{Kind: k.Name, Lane: k.Name}
				if err := d.QueryRow(t.Context(), `SELECT id FROM jobs WHERE kind = $1`, k.Name).
					Scan((*db.ID)(&j.ID)); err != nil {
					t.Fatal(err)
				}
				if err := k.Handle(t.Context(), j); err != nil {
					t.Fatal(err)
				}
				var at int64
				var why string
				if err := d.QueryRow(t.Context(), `SELECT run_at, last_error FROM jobs WHERE kind = $1`, k.Name).Scan(&at,
					&why); err != nil {
					t.Fatal(err)
				}
				if got := time.UnixMicro(at).Sub(d.Now()); got != c.want[i] || (why != "") != c.fails {
					t.Errorf("%s, failed %v: again in %v, %q", k.Name, c.fails, got, why)
				}
			}
		}
		// A shorter interval makes the next run earlier, and a longer interval does not delay it.
		exec(t, d, `UPDATE jobs SET run_at = $1, set_at = 1`, d.Now().Add(24*time.Hour).UnixMicro())
		exec(t, d, `UPDATE jobs SET run_at = $1 WHERE kind = 'cron.seldom'`, d.Now().Add(time.Minute).UnixMicro())
		if err := d.Update(t.Context(), func(tx *db.Tx) error { r.insertCrons(t.Context(), tx); return nil }); err != nil {
			t.Fatal(err)
		}
		for kind, want := range map[string]time.Duration{"cron.often": 30 * time.Second, "cron.seldom": time.Minute} {
			var at int64
			if err := d.QueryRow(t.Context(), `SELECT run_at FROM jobs WHERE kind = $1`, kind).Scan(&at); err != nil {
				t.Fatal(err)
			}
			if got := time.UnixMicro(at).Sub(d.Now()); got != want {
				t.Errorf("%s: in %v, want %v", kind, got, want)
			}
		}
	})
}

// The loop runs again when the next lane is due, or after a minute if no lane is due. The loop claims due jobs without
// delay.
func TestHowLongNothingIsToBeDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
		if err := r.begin(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.Handle(Kind{Name: "k", Workers: 2, Handle: func(ctx context.Context, j Job) error {
			<-ctx.Done()
			return nil
		}})
		k := r.kinds[0]
		r.running.Store(true)
		workers := newCrew()
		ctx, cancel := context.WithCancel(t.Context())
		is := func(want time.Duration) {
			t.Helper()
			if got := k.turn(ctx, ctx, workers); got != want {
				t.Errorf("nothing is to be done for %v, want %v", got, want)
			}
		}
		is(idleMax)
		k.hint("later", d.Now().Add(10*time.Second).UnixMicro())
		is(10 * time.Second)
		k.hint("soon", d.Now().Add(time.Microsecond).UnixMicro())
		is(time.Millisecond)
		time.Sleep(time.Second)
		is(9 * time.Second) // the lane "soon" had no job
		insert(t, d, New{Kind: "k", Lane: "a"})
		is(claimEvery) // the lane may have more jobs, and claims are batched while jobs run
		insert(t, d, New{Kind: "k", Lane: "b"})
		is(claimEvery)
		time.Sleep(claimEvery)
		is(9*time.Second - claimEvery)
		if len(k.claimed) != 2 {
			t.Errorf("%d are in hand", len(k.claimed))
		}
		cancel()
		workers.end()
	})
}

// If a lane's group has no capacity, the lane is held until a job in the group ends. If the group has no running jobs,
// plan sets an alarm for the lane.
func TestLanesWithoutRoom(t *testing.T) {
	r := NewRunner(dbtest.SQLite(t), nil, slog.New(slog.DiscardHandler), time.Second)
	soon := time.Now().Add(time.Minute)
	for _, c := range []struct {
		name         string
		lane         string
		limit        int
		again        time.Time
		inHand, bulk int // number of the group's running jobs, and of its running bulk jobs
		held         bool
	}{
		{"nothing in hand", "o", 0, time.Time{}, 0, 0, false},
		{"bulk, and nothing in hand", "b", 0, time.Time{}, 0, 0, false},
		{"all in hand", "o", 2, time.Time{}, 4, 0, true},
		{"bulk has all that it may", "b", 4, time.Time{}, 3, 3, true},
		{"for a time", "o", 0, soon, 1, 0, false},
		{"bulk, for a time", "b", 0, soon, 1, 1, false},
	} {
		k := newDispatcher(r, Kind{Workers: 16, PerLane: 16, Owner: func(string) string { return "owner" },
			Group: func(string) string { return "g" },
			Bulk:  func(lane string) bool { return lane == "b" }, Limit: func(string) (int, time.Time) {
				return c.limit,
					c.again
			}})
		k.inHand["g"], k.shares[share{"owner", "g"}] = c.inHand, c.inHand
		if c.bulk > 0 {
			k.bulk.add(share{"owner", "g"}, c.bulk)
		}
		k.enqueue(c.lane, 0)
		asks := k.plan()
		_, waits := k.alarms.soonest()
		if len(asks) != 0 || (k.held["g"] != nil) != c.held || waits == c.held || k.lanes[c.lane].queued != c.held {
			t.Errorf("%s: asks %v, held %v, looked at again %v", c.name, asks, k.held["g"] != nil, waits)
		}
	}
}
