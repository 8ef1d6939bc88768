package db_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// A database that can be read and not written is not ready. Updates that store nothing do not hide that. Once writes
// succeed, the database is ready again.
func TestReadyNeedsWrites(t *testing.T) {
	path := dbtest.SQLiteFile(t)
	d := dbtest.Open(t, path)
	makeTable(t, d)
	if err := d.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	mend := dbtest.Unwritable(t, path)
	if err := insert(t.Context(), d, "a", "a", 1); !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrUnknown) {
		t.Fatalf("a write: %v", err)
	}
	for range 3 {
		if err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE things SET n = 1 WHERE id = 'none'`)
			return err
		}); err != nil {
			t.Fatalf("an update that stores nothing: %v", err)
		}
		if err := d.Ready(t.Context()); err == nil {
			t.Error("a database that cannot store anything is ready")
		}
		if n := count(t, d.Reader); n != 0 {
			t.Errorf("%d rows", n)
		}
		d.ForgetWrites()
	}
	mend()
	d.ForgetWrites()
	if err := d.Ready(t.Context()); err != nil {
		t.Errorf("mended: %v", err)
	}
	if err := insert(t.Context(), d, "a", "a", 1); err != nil {
		t.Errorf("a write, mended: %v", err)
	}
}

// Callers share one probe, a recent commit makes it unnecessary, and a blocked writer does not block them.
func TestReadyIsCheap(t *testing.T) {
	var updates atomic.Int64
	d, err := db.Open(t.Context(), db.Options{URL: dbtest.SQLiteFile(t),
		OnUpdate: func(time.Duration, time.Duration, error) { updates.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	makeTable(t, d)
	ready := func() {
		t.Helper()
		var all sync.WaitGroup
		for range 50 {
			all.Go(func() {
				if err := d.Ready(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	if err := insert(t.Context(), d, "a", "a", 1); err != nil {
		t.Fatal(err)
	}
	before := updates.Load()
	ready()
	if n := updates.Load() - before; n != 0 {
		t.Errorf("%d probes after a commit", n)
	}
	d.ForgetWrites()
	ready()
	if n := updates.Load() - before; n != 1 {
		t.Errorf("%d probes for 50 callers", n)
	}

	d.ForgetWrites()
	blocked, resume := make(chan struct{}), make(chan struct{})
	ended := make(chan error)
	go func() {
		ended <- d.Update(t.Context(), func(*db.Tx) error {
			close(blocked)
			<-resume
			return nil
		})
	}()
	<-blocked
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := d.Ready(short); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("while the writer is blocked: %v", err)
	}
	close(resume)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err := d.Ready(t.Context()); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}
