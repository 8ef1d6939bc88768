package db_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// endless is a query that returns its first row immediately and then runs for days.
const endless = `SELECT n, 'endless' FROM (WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t
	WHERE n < 100000000000) SELECT n FROM t) x WHERE n = 1 OR n < 0`

// counted is a query that counts the rows that the endless query returns, so it returns its only row at the end.
const counted = `SELECT COUNT(*) FROM (` + endless + `) y`

// running returns how many endless queries are executing. On SQLite, running returns 0, because queries run in the test
// process and occupy a reader.
func running(t *testing.T, d *db.DB) (n int) {
	t.Helper()
	if d.Engine() == "sqlite" {
		return 0
	}
	if err := d.QueryRow(t.Context(),
		`SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND datname = current_database()
		AND query LIKE '%''endless''%' AND pid <> pg_backend_pid()`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// readEndless returns a function that runs an endless query until the context ends.
func readEndless(text string) func(ctx context.Context, r db.Reader) error {
	return func(ctx context.Context, r db.Reader) error {
		if text == counted {
			var n int
			return r.QueryRow(ctx, text).Scan(&n)
		}
		rows, err := r.Query(ctx, text)
		_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
			var n int64
			var text string
			return none, r.Scan(&n, &text)
		})
		return err
	}
}

// The time limit ends a long read, even after the read has returned a row.
func TestLongReadsEnd(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		for _, text := range []string{endless, counted} {
			err := d.ReadLong(t.Context(), db.Long{Owner: "a", Time: 50 * time.Millisecond}, readEndless(text))
			if !errors.Is(err, db.ErrTooLong) || fault.KindOf(err) != fault.Unavailable {
				t.Errorf("%s: %v", text, err)
			}
			canceled, cancel := context.WithCancel(t.Context())
			time.AfterFunc(50*time.Millisecond, cancel)
			err = d.ReadLong(canceled, db.Long{Owner: "a"}, readEndless(text))
			if !errors.Is(err, context.Canceled) || errors.Is(err, db.ErrTooLong) {
				t.Errorf("canceled: %s: %v", text, err)
			}
		}
		for deadline := time.Now().Add(10 * time.Second); running(t, d) > 0; {
			if time.Now().After(deadline) {
				t.Fatal("the server still works on what was ended")
			}
		}
		none := errors.New("none")
		if err := d.ReadLong(t.Context(), db.Long{Owner: "a"}, func(context.Context, db.Reader) error {
			return none
		}); err != none {
			t.Errorf("the error of a read: %v", err)
		}
	})
}

// Even if many long reads wait, other reads find a free connection, and each owner gets a slot.
func TestLongReadsLeaveReaders(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { // each database has six readers or connections
		want := map[string]int{"sqlite": 3, "postgres": 1}[d.Engine()]
		ctx, cancel := context.WithCancel(t.Context())
		began := make(chan string)
		var wg sync.WaitGroup
		read := func(owner string) {
			wg.Go(func() {
				d.ReadLong(ctx, db.Long{Owner: owner}, func(ctx context.Context, r db.Reader) error {
					select {
					case began <- owner:
					case <-ctx.Done():
					}
					return readEndless(counted)(ctx, r)
				})
			})
		}
		defer wg.Wait()
		defer cancel()
		for range 20 {
			read("greedy")
		}
		alone := want - want/2
		for range alone {
			<-began
		}
		for range want - alone {
			read("other")
			if owner := <-began; owner != "other" {
				t.Fatalf("%s got the place that is kept", owner)
			}
		}
		err := d.ReadLong(ctx, db.Long{Owner: "third", Wait: time.Millisecond}, readEndless(counted))
		if !errors.Is(err, db.ErrCrowded) || fault.KindOf(err) != fault.Unavailable {
			t.Errorf("another: %v", err)
		}
		for range 20 {
			var one int
			if err := d.QueryRow(ctx, `SELECT 1`).Scan(&one); err != nil {
				t.Fatal(err)
			}
		}
		gone, leave := context.WithCancel(ctx)
		leave()
		if err := d.ReadLong(gone, db.Long{Owner: "third"}, readEndless(counted)); !errors.Is(err, context.Canceled) {
			t.Errorf("one whose client has gone: %v", err)
		}
	})
}

// A long read returns the same rows in the same order as a normal read.
func TestLongReadsInOrder(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		for i, id := range []string{"b", "c", "a"} {
			if err := insert(t.Context(), d, id, id, i); err != nil {
				t.Fatal(err)
			}
		}
		read := func(text string, args ...any) (all string) {
			err := d.ReadLong(t.Context(), db.Long{Owner: "a"}, func(ctx context.Context, r db.Reader) error {
				rows, err := r.Query(ctx, text, args...)
				_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
					var id string
					err = r.Scan(&id)
					all += id
					return none, err
				})
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		if all := read(`SELECT id FROM things ORDER BY id DESC LIMIT $1`, 2); all != "cb" {
			t.Errorf("%q", all)
		}
		if all := read(`SELECT id FROM things WHERE id = ANY($1) ORDER BY name`, []string{"c", "a"}); all != "ac" {
			t.Errorf("%q", all)
		}
	})
}

// All reads on PostgreSQL use indexes, without JIT compilation. Long reads use one process.
func TestLongReadsOfPostgres(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		if d.Engine() == "sqlite" {
			return
		}
		shown := func(ctx context.Context, r db.Reader, setting string) (value string) {
			if err := r.QueryRow(ctx, `SELECT current_setting('`+setting+`')`).Scan(&value); err != nil {
				t.Fatal(err)
			}
			return value
		}
		for range 3 { // each iteration uses another connection
			err := d.ReadLong(t.Context(), db.Long{Owner: "a"}, func(ctx context.Context, r db.Reader) error {
				if n := shown(ctx, r, "max_parallel_workers_per_gather"); n != "0" {
					t.Errorf("a long read may use %s more processes", n)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if scan, jit := shown(t.Context(), d.Reader, "enable_seqscan"), shown(t.Context(), d.Reader, "jit"); scan != "off" ||
				jit != "off" {
				t.Errorf("enable_seqscan is %s and jit %s", scan, jit)
			}
		}
	})
}
