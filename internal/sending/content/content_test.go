package content

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// TestUsedWhileItIsSwept: a Content that is used during the sweep is not deleted, because the transaction that recorded
// the use has inserted emails that refer to it.
func TestUsedWhileItIsSwept(t *testing.T) {
	d := dbtest.Postgres(t)
	ctx := t.Context()
	s := New(d)
	html := "<p>hello</p>"
	c := Content{TeamID: dbtest.ID("team"), From: "a@b.example", Subject: "s", HTML: &html}
	if err := d.Update(ctx, func(tx *db.Tx) error { return s.Add(ctx, tx, &c) }); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE contents SET used_at = used_at - 10800000000`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Get(ctx, dbtest.ID("team"), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	some, err := s.Unused(ctx, dbtest.ID("team"), Unused{})
	if err != nil || len(some) != 1 {
		t.Fatal(some, err)
	}
	swept := make(chan error, 1)
	err = d.Update(ctx, func(tx *db.Tx) error {
		s.MarkUsed(ctx, tx, k.Ref) // as Enqueue does
		if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
			return err
		}
		go func() {
			swept <- s.RemoveUnused(context.Background(), some)
		}()
		for { // wait until this transaction blocks the sweep
			var n int
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database() AND query LIKE '%DELETE FROM contents%'`).Scan(&n); err != nil {
				return err
			}
			if n > 0 {
				return nil
			}
			select {
			case err := <-swept:
				swept <- err
				return nil
			default:
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-swept; err != nil {
		t.Fatal(err)
	}
	var n int
	if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM contents`).Scan(&n); err != nil || n != 1 {
		t.Errorf("there are %d contents, %v: the emails that were entered have none", n, err)
	}
}

// A use is recorded at most once an hour, even if the clock is behind the last recorded use. Each process records its
// own uses.
func TestUsesAreNoted(t *testing.T) {
	path := dbtest.SQLiteFile(t)
	c := Content{TeamID: dbtest.ID("team"), From: "a@b.example", Subject: "s", HTML: new("<p>hello</p>")}
	row := func(t *testing.T, d *db.DB) (used int64, from string) {
		t.Helper()
		if err := d.QueryRow(t.Context(), `SELECT used_at, from_id FROM contents`).Scan(&used,
			(*db.ID)(&from)); err != nil {
			t.Fatal(err)
		}
		return used, from
	}
	noted := func(t *testing.T, d *db.DB, s *Service) bool {
		t.Helper()
		before, _ := row(t, d)
		k, err := s.Get(t.Context(), dbtest.ID("team"), c.ID)
		if err == nil {
			err = d.Update(t.Context(), func(tx *db.Tx) error {
				s.MarkUsed(t.Context(), tx, k.Ref)
				return nil
			})
		}
		if err != nil {
			t.Fatal(err)
		}
		after, _ := row(t, d)
		return after > before
	}
	var first string
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.Open(t, path)
		s := New(d)
		if err := d.Update(t.Context(), func(tx *db.Tx) error { return s.Add(t.Context(), tx, &c) }); err != nil {
			t.Fatal(err)
		}
		_, first = row(t, d)
		time.Sleep(9 * time.Hour)
		for i, want := range []bool{true, false, true, false} {
			if got := noted(t, d, s); got != want {
				t.Errorf("use %d after half an hour is noted: %t", i, got)
			}
			time.Sleep(31 * time.Minute)
		}
		if !noted(t, d, New(d)) {
			t.Error("a process that begins relies on what was noted before")
		}
		if _, from := row(t, d); from != first {
			t.Errorf("emails of it begin at %s, not at %s any more", from, first)
		}
	})
	synctest.Test(t, func(t *testing.T) { // synctest starts in 2000 again, so the clock goes back by eleven hours
		d := dbtest.Open(t, path)
		s := New(d)
		all, err := s.Unused(t.Context(), dbtest.ID("team"), Unused{})
		if err != nil || len(all) != 0 {
			t.Error(all, err)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE contents SET from_id = $1`, db.ID(id.First(tx.Now().Add(5*time.Hour))))
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if !noted(t, d, s) || noted(t, d, s) {
			t.Error("a use by the clock that was set back is not noted once")
		}
		if _, from := row(t, d); from > id.First(time.Now().Add(-usedEvery)) {
			t.Errorf("emails of it are looked for from %s on", from)
		}
	})
}

// The sweep does not change a Content that was used after the sweep searched for its emails.
func TestSweptLate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx, s := t.Context(), New(d)
		c := Content{TeamID: dbtest.ID("team"), From: "a@b.example", Subject: "s", HTML: new("<p>hello</p>")}
		if err := d.Update(ctx, func(tx *db.Tx) error {
			if err := s.Add(ctx, tx, &c); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, `UPDATE contents SET used_at = used_at - 10800000000`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		read, err := s.Unused(ctx, dbtest.ID("team"), Unused{})
		if err != nil || len(read) != 1 || read[0].From >= read[0].Until() {
			t.Fatal(read, err)
		}
		if more, err := s.Unused(ctx, dbtest.ID("team"), read[0]); err != nil || len(more) > 0 {
			t.Errorf("after the last come %v, %v", more, err)
		}
		if err := s.AdvanceFrom(ctx, read[0], read[0].Until()); err != nil {
			t.Fatal(err)
		}
		left := func() (n int) {
			t.Helper()
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM contents WHERE from_id = $1`,
				db.ID(read[0].Until())).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if err := s.RemoveUnused(ctx, read); err != nil || left() != 1 {
			t.Errorf("%d contents are left: %v", left(), err)
		}
		again, err := s.Unused(ctx, dbtest.ID("team"), Unused{})
		if err != nil || len(again) != 1 || again[0].From != read[0].Until() {
			t.Fatal(again, err)
		}
		for _, others := range [][]Unused{{{TeamID: dbtest.ID("other"), ID: c.ID, From: again[0].From,
			used: again[0].used}}, again} {
			if err := s.RemoveUnused(ctx, others); err != nil {
				t.Fatal(err)
			}
			if n, gone := left(), others[0].TeamID == dbtest.ID("team"); (n == 0) != gone {
				t.Errorf("of team %s %d are left", others[0].TeamID, n)
			}
		}
		if _, err := s.Get(ctx, dbtest.ID("team"), c.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("it is found: %v", err)
		}
	})
}

// The estimated size of a compiled Content in memory is close to its actual size.
func TestWeightOfPlaceholders(t *testing.T) {
	html := strings.Repeat("{{{a}}}", 150_000) // 1 MB
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	k := Compile(&Content{HTML: &html})
	runtime.GC()
	runtime.ReadMemStats(&after)
	took := int64(after.HeapAlloc) - int64(before.HeapAlloc)
	if took > 2*k.weight() {
		t.Errorf("it takes %d bytes besides its text and counts as %d", took, k.weight())
	}
	if n := k.Size(nil); n == 0 {
		t.Logf("filled without values it has %d bytes: so the memory for composing one email is estimated at about 1 KB", n)
	}
	runtime.KeepAlive(k)
}
