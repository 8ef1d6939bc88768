package db

import (
	"context"
	"errors"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// Reads that wait share a transaction, and therefore see the same state. A read that fails does not concern the others,
// and a later read sees what was committed before it.
func TestReadsShareATransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		d, err := Open(ctx, Options{URL: filepath.Join(t.TempDir(), "test.db")})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		together := func(ctx context.Context, fn func(Reader) error) error {
			return d.e.(*sqliteDB).short.read(ctx, func(q querier) error { return fn(Reader{q}) })
		}
		change := func(text string) {
			t.Helper()
			if err := d.Update(ctx, func(tx *Tx) error { tx.Queue(ctx, text); return nil }); err != nil {
				t.Error(err)
			}
		}
		change(`CREATE TABLE things (n INTEGER)`)
		count := func(r Reader) (n int, err error) {
			err = r.QueryRow(ctx, `SELECT COUNT(*) FROM things`).Scan(&n)
			return n, err
		}
		var others, group sync.WaitGroup
		one, all := make(chan struct{}), make(chan struct{}) // end one of the reads that keep the goroutines busy, or all
		for range max(1, runtime.GOMAXPROCS(0)/2) {
			others.Go(func() {
				together(ctx, func(Reader) error {
					select {
					case <-one:
					case <-all:
					}
					return nil
				})
			})
		}
		synctest.Wait()
		boom := errors.New("boom")
		var found []int
		for range 3 {
			group.Go(func() {
				err := together(ctx, func(r Reader) error {
					n, err := count(r)
					found = append(found, n)
					if err == nil && len(found) == 1 {
						change(`INSERT INTO things (n) VALUES (1)`)
						return boom
					}
					return err
				})
				if err != nil && !errors.Is(err, boom) {
					t.Error(err)
				}
			})
			group.Go(func() {
				err := together(ctx, func(Reader) error { panic("a mistake") })
				if err == nil || !strings.Contains(err.Error(), "a mistake") {
					t.Errorf("after a panic: %v", err)
				}
			})
		}
		synctest.Wait()
		one <- struct{}{}
		group.Wait()
		if len(found) != 3 || found[0]+found[1]+found[2] != 0 {
			t.Errorf("the reads of one transaction found %v rows", found)
		}
		if err := together(ctx, func(r Reader) error {
			if n, err := count(r); n != 1 || err != nil {
				t.Errorf("the next read found %d rows, %v", n, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		close(all)
		others.Wait()
		ended, cancel := context.WithCancel(ctx)
		cancel()
		if err := together(ended, func(Reader) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("after the end of the context: %v", err)
		}
		d.Close()
		if err := together(ctx, func(Reader) error { return nil }); !errors.Is(err, ErrUnavailable) {
			t.Errorf("after Close: %v", err)
		}
	})
}
