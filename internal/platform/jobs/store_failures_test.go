package jobs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// If an SQL statement in a Queue method fails, the method returns an error and leaves the jobs unchanged.
func TestVerbsWithoutAStatement(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx, q := t.Context(), NewQueue(d)
		var j Job
		in := func(f func(tx *db.Tx) error) func() error { return func() error { return d.Update(ctx, f) } }
		rows := func() string {
			t.Helper()
			rows, err := d.Query(ctx, `SELECT id, run_at, holder, attempt, tries, failures, parked FROM jobs ORDER BY id`)
			all, err := db.Collect(rows, err, func(r db.Row) (text string, err error) {
				var id, holder string
				var at, attempt, tries, failures int64
				var parked bool
				err = r.Scan((*db.ID)(&id), &at, (*db.ID)(&holder), &attempt, &tries, &failures, &parked)
				return fmt.Sprintln(id, at, holder, attempt, tries, failures, parked), err
			})
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(all, "")
		}
		for _, c := range []struct {
			name  string
			spoil string
			act   func() error
		}{
			{"Insert", "", in(func(tx *db.Tx) error { q.Insert(ctx, tx, New{Kind: "k"}); return nil })},
			{"Finish", "", in(func(tx *db.Tx) error {
				q.Finish(ctx, tx, j)
				return nil
			})},
			{"Retry", "", in(func(tx *db.Tx) error {
				q.Retry(ctx, tx, j, tx.Now(), "why")
				return nil
			})},
			{"Wait", "", in(func(tx *db.Tx) error {
				q.Wait(ctx, tx, j, tx.Now(), "why")
				return nil
			})},
			{"Park", "", in(func(tx *db.Tx) error {
				q.Park(ctx, tx, j, "why")
				return nil
			})},
			{"Remove", "", in(func(tx *db.Tx) error { _, err := q.Remove(ctx, tx, "k", "", "d"); return err })},
			{"Move", "", in(func(tx *db.Tx) error { _, err := q.Move(ctx, tx, "k", "", "k", "d", tx.Now()); return err })},
			{"Unpark", `UPDATE jobs SET parked = TRUE`, func() error { return q.Unpark(ctx, j.ID) }},
			{"ParkedJobs", `UPDATE jobs SET parked = TRUE`, func() error {
				_, err := ParkedJobs(ctx, d.Reader, "",
					10)
				return err
			}},
			{"Stats", "", func() error { _, err := Stats(ctx, d.Reader); return err }},
			{"EraseTeam", "", func() error { return q.EraseTeam(ctx, dbtest.ID("team")) }},
		} {
			before := ""
			failed := trace.EachBroken(t, func() {
				exec(t, d, `DELETE FROM jobs`)
				insert(t, d, New{Kind: "k", TeamID: dbtest.ID("team"), Dedupe: "d"})
				if c.spoil != "" {
					exec(t, d, c.spoil)
				}
				j = Job{Kind: "k", Lane: "k"}
				if err := d.QueryRow(ctx, `SELECT id FROM jobs`).Scan((*db.ID)(&j.ID)); err != nil {
					t.Fatal(err)
				}
				before = rows()
			}, c.act, func(err error) {
				if now := rows(); err != nil && now != before && c.name != "EraseTeam" { // EraseTeam deletes in steps
					t.Errorf("%s fails and has changed something: %v\n%s%s", c.name, err, before, now)
				}
			})
			if failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
		}
		for _, jobID := range []string{dbtest.ID("nobody"), "nobody", ""} {
			if err := q.Unpark(ctx, jobID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("the job %q, which is not there: %v", jobID, err)
			}
		}
	})
}

// Stats and ParkedJobs report waiting and parked jobs, and since when waiting jobs have been due.
func TestWhatOperatorsSee(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		at := d.Now().Add(time.Hour).Truncate(time.Microsecond)
		insert(t, d, New{Kind: "a", Dedupe: "1", RunAt: at}, New{Kind: "a", Dedupe: "2", RunAt: at.Add(time.Hour)},
			New{Kind: "b", Dedupe: "3", TeamID: dbtest.ID("team"), RunAt: at}, New{Kind: "c", Dedupe: "4", RunAt: at})
		var parked Job
		if err := d.QueryRow(t.Context(), `SELECT id, lane FROM jobs WHERE kind = 'b'`).Scan((*db.ID)(&parked.ID),
			&parked.Lane); err != nil {
			t.Fatal(err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			NewQueue(d).Park(t.Context(), tx, parked, "why")
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		exec(t, d, `UPDATE jobs SET holder = id, run_at = $1 WHERE kind = 'c'`, int64(inHand))
		all, err := Stats(t.Context(), d.Reader)
		if err != nil || len(all) != 3 || all[0].Jobs != 2 || !all[0].DueFrom.Equal(at) || all[0].Parked != 0 ||
			all[1].Parked != 1 ||
			!all[1].DueFrom.IsZero() || !all[2].DueFrom.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		some, err := ParkedJobs(t.Context(), d.Reader, "", 10)
		if err != nil || len(some) != 1 || some[0].ID != parked.ID || some[0].LastError != "why" || some[0].Failures != 1 ||
			some[0].TeamID != dbtest.ID("team") || some[0].Lane != "b" || some[0].CreatedAt.IsZero() {
			t.Errorf("%+v, %v", some, err)
		}
		if some, err = ParkedJobs(t.Context(), d.Reader, parked.ID, 10); err != nil || len(some) != 0 {
			t.Errorf("after the last: %+v, %v", some, err)
		}
	})
}

// parseHint rejects a hint from another node if any part of it is invalid.
func TestParseHint(t *testing.T) {
	if kind, lane, at, ok := parseHint("k\tl|t\tzz"); !ok || kind != "k" || lane != "l|t" || at != 35*36+35 {
		t.Errorf("%q %q %d, %v", kind, lane, at, ok)
	}
	for _, text := range []string{"", "k", "k\tl", "k\tl\t", "k\tl\t?", "\t\t"} {
		if _, _, _, ok := parseHint(text); ok {
			t.Errorf("%q is a hint", text)
		}
	}
}

// An SQL statement may fail during a claim, or while the runner starts or stops. The method then returns the error, and
// the node holds no jobs.
func TestRunnersWithoutAStatement(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		ctx := t.Context()
		var r *Runner
		var k *dispatcher
		fresh := func() {
			exec(t, d, `DELETE FROM jobs`)
			exec(t, d, `DELETE FROM nodes`)
			r = testRunner(t, d)
			r.Handle(Kind{Name: "k", Handle: func(context.Context, Job) error { return nil }})
			k = r.kinds[0]
		}
		begun := func() {
			fresh()
			if err := r.begin(ctx); err != nil {
				t.Fatal(err)
			}
			insert(t, d, New{Kind: "k", Lane: "l"})
		}
		workers := newCrew()
		for _, c := range []struct {
			name    string
			prepare func()
			act     func() error
		}{
			{"begin", fresh, func() error { return r.begin(ctx) }},
			{"a claim", begun, func() error {
				k.workers.TryAcquire("l", 1)
				k.workers.TryAcquire("m", 1)
				return k.claim(ctx, ctx, []ask{{lane: "l", owner: "l", group: "l", n: 1}, {lane: "m", owner: "m", group: "m",
					n: 1}}, workers)
			}},
			{"releaseClaims", begun, func() error { return k.releaseClaims(ctx) }},
			{"restartWaits", func() {
				begun()
				exec(t, d, `UPDATE jobs SET run_at = $1, set_at = $2`, r.d.Now().UnixMicro(), r.d.Now().Add(slack).UnixMicro())
			}, func() error { _, err := r.restartWaits(ctx); return err }},
			{"end", begun, func() error { return r.end() }},
		} {
			if failed := trace.EachBroken(t, c.prepare, c.act, func(err error) {
				workers.end()
				workers = newCrew()
				if err != nil && len(k.claimed)+len(k.inHand) > 0 {
					t.Errorf("%s fails, and %d are in hand", c.name, len(k.claimed))
				}
			}); failed < 1 {
				t.Errorf("%s never fails", c.name)
			}
		}
	})
}

// Remove and Move change nothing and return false if the job is missing or running.
func TestNothingToRemoveOrMove(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		q := NewQueue(d)
		insert(t, d, New{Kind: "k", Dedupe: "waits"}, New{Kind: "k", Dedupe: "in hand"}, New{Kind: "k"})
		exec(t, d, `UPDATE jobs SET holder = id WHERE dedupe = 'in hand'`)
		for key, want := range map[string]bool{"waits": true, "in hand": false, "none": false, "": false} {
			var moved, removed bool
			err := d.Update(t.Context(), func(tx *db.Tx) (err error) {
				if moved, err = q.Move(t.Context(), tx, "k", "", "k", key, tx.Now()); err != nil {
					return err
				}
				removed, err = q.Remove(t.Context(), tx, "k", "", key)
				return err
			})
			if err != nil || moved != want || removed != want {
				t.Errorf("%q: moved %v, removed %v, %v", key, moved, removed, err)
			}
		}
	})
}
