package content

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// A content whose use is noted while the sweep runs stays: the transaction that noted it has entered emails of it.
func TestUsedWhileItIsSwept(t *testing.T) {
	d := dbtest.Postgres(t)
	ctx := t.Context()
	s := New(d)
	html := "<p>hello</p>"
	c := Content{TeamID: "team", From: "a@b.example", Subject: "s", HTML: &html}
	if err := d.Update(ctx, func(tx *db.Tx) error { return s.Add(ctx, tx, &c) }); err != nil {
		t.Fatal(err)
	}
	if err := d.Update(ctx, func(tx *db.Tx) error {
		_, err := tx.Exec(ctx, `UPDATE contents SET used_at = used_at - 10800000000`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	k, err := s.Get(ctx, "team", c.ID)
	if err != nil {
		t.Fatal(err)
	}
	swept := make(chan error, 1)
	err = d.Update(ctx, func(tx *db.Tx) error {
		s.Use(ctx, tx, k.Ref) // as Enqueue does
		if _, err := tx.Exec(ctx, `SELECT 1`); err != nil {
			return err
		}
		go func() {
			_, err := s.RemoveUnused(context.Background(), "team", time.Time{})
			swept <- err
		}()
		for { // until the sweep waits for this transaction
			var n int
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND query LIKE '%DELETE FROM contents%'`).Scan(&n); err != nil {
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

// What a compiled content is said to weigh is about what it takes of memory.
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
		t.Errorf("it takes %d octets besides its text and counts as %d", took, k.weight())
	}
	if n := k.Size(nil); n == 0 {
		t.Logf("filled without values it has %d octets: so the memory for composing one email is estimated at about 1 KB", n)
	}
	runtime.KeepAlive(k)
}
