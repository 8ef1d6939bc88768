package db_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// prove returns an update that inserts a row and sets a query for that row as its proof (see db.Tx.Proof).
func prove(ctx context.Context, id string, ran *int) func(*db.Tx) error {
	return func(tx *db.Tx) error {
		*ran++
		tx.Proof(`SELECT 1 FROM things WHERE id = $1`, id)
		tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, TRUE, '')`, id, len(id))
		return nil
	}
}

// committing returns the functions that commit an update (Update and UpdateTogether), keyed by name.
func committing(d *db.DB) map[string]func(context.Context, func(*db.Tx) error) error {
	return map[string]func(context.Context, func(*db.Tx) error) error{
		"alone": d.Update,
		"together": func(ctx context.Context, fn func(*db.Tx) error) error {
			return d.UpdateTogether(ctx, db.Accepting, fn)
		},
	}
}

// If only the answer to a COMMIT is lost, the update succeeds and does not run again.
func TestLostAnswer(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	makeTable(t, d)
	for name, update := range committing(d) {
		t.Run(name, func(t *testing.T) {
			before, lost := count(t, d.Reader), proxy.Lost()
			proxy.LoseAnswers(1)
			ran, told := 0, 0
			one := prove(t.Context(), name, &ran)
			err := update(t.Context(), func(tx *db.Tx) error {
				tx.AfterCommit(func() { told++ })
				return one(tx)
			})
			if err != nil || ran != 1 || told != 1 || proxy.Lost() != lost+1 {
				t.Errorf("ran %d times, told of %d commits, error %v, lost %d; want 1, 1, nil, %d", ran, told, err, proxy.Lost(),
					lost+1)
			}
			if got := count(t, d.Reader); got != before+1 {
				t.Errorf("%d rows, want %d", got, before+1)
			}
		})
	}
}

// If a COMMIT does not reach the server, the update runs again once it is certain that the first run stored nothing.
func TestLostCommit(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	makeTable(t, d)
	for name, update := range committing(d) {
		t.Run(name, func(t *testing.T) {
			proxy.DropCommits(1)
			ran := 0
			if err := update(t.Context(), prove(t.Context(), name, &ran)); err != nil || ran != 2 {
				t.Errorf("ran %d times, error %v; want 2, nil", ran, err)
			}
			// If every connection breaks, the update runs twice but not a third time.
			proxy.DropCommits(100)
			ran = 0
			err := update(t.Context(), prove(t.Context(), name+" again", &ran))
			if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrUnknown) || ran != 2 {
				t.Errorf("ran %d times, error %v; want 2, unavailable", ran, err)
			}
			if err := proxy.Pass(); err != nil {
				t.Fatal(err)
			}
		})
	}
	if n := count(t, d.Reader); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// The outcome of an update without a proof cannot be determined. An update without a proof may have been stored, so it
// never runs again after a lost answer.
func TestUnknownCommit(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	makeTable(t, d)
	for name, update := range committing(d) {
		t.Run(name, func(t *testing.T) {
			proxy.LoseAnswers(1)
			ran := 0
			err := update(t.Context(), func(tx *db.Tx) error {
				ran++
				tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, TRUE, '')`, name, len(name))
				return nil
			})
			if !errors.Is(err, db.ErrUnknown) || errors.Is(err, db.ErrUnavailable) || fault.KindOf(err) != fault.Unavailable ||
				ran != 1 {
				t.Errorf("ran %d times, error %v; want once, unknown", ran, err)
			}
		})
	}
	poll(t, func() bool { return proxy.Lost() == 2 })
	if n := count(t, d.Reader); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
}

// Update waits while the server still works on the transaction. If the transaction does not end, Update terminates the
// transaction's server process, which causes a rollback, and runs the update again.
func TestSlowCommit(t *testing.T) {
	for _, ends := range []bool{true, false} {
		t.Run(fmt.Sprintf("ends=%v", ends), func(t *testing.T) {
			d, proxy := dbtest.Proxied(t, 4*time.Second)
			makeTable(t, d)
			if err := insert(t.Context(), d, "locked", "locked", 100); err != nil {
				t.Fatal(err)
			}
			held, free := make(chan struct{}), make(chan struct{})
			beside := dbtest.OpenThrough(t, proxy, 0)
			var wg sync.WaitGroup
			lock := func(tx *db.Tx) { tx.Queue(t.Context(), `UPDATE things SET ok = FALSE WHERE id = 'locked'`) }
			wg.Go(func() {
				err := beside.Update(t.Context(), func(tx *db.Tx) error {
					lock(tx)
					if _, err := tx.Exec(t.Context(), `SELECT 1`); err != nil {
						return err
					}
					close(held)
					<-free
					return errors.New("undone")
				})
				if err == nil {
					t.Error("no error")
				}
			})
			<-held
			proxy.LoseAnswers(1)
			commits := proxy.Commits()
			var ran atomic.Int32
			wg.Go(func() {
				err := d.Update(t.Context(), func(tx *db.Tx) error {
					ran.Add(1)
					lock(tx)
					var n int
					return prove(t.Context(), "mine", &n)(tx)
				})
				if err != nil {
					t.Error(err)
				}
			})
			poll(t, func() bool { return proxy.Commits() > commits })
			want := int32(1)
			if !ends {
				want = 2
				poll(t, func() bool { return ran.Load() == want })
			}
			close(free)
			wg.Wait()
			if n := count(t, d.Reader); n != 2 || ran.Load() != want {
				t.Errorf("ran %d times, %d rows; want %d, 2", ran.Load(), n, want)
			}
		})
	}
}

// If the packets of an open connection are lost, UpdateApart ends when its context ends, even if it waits for the
// answer to a COMMIT. The next call can change the same row. It waits neither until the driver has closed the old
// connection nor for long until the server has ended the old transaction. A node that writes no heartbeats for too long
// loses its jobs.
func TestStrandedApart(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	defer proxy.Cut() // otherwise Close would wait for the driver
	makeTable(t, d)
	if err := insert(t.Context(), d, "beat", "beat", 0); err != nil {
		t.Fatal(err)
	}
	update := func(limit time.Duration, ran func()) (time.Duration, error) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		began := time.Now()
		err := d.UpdateApart(ctx, func(tx *db.Tx) error {
			_, err := tx.Exec(ctx, `UPDATE things SET n = n + 1`)
			ran()
			return err
		})
		return time.Since(began), err
	}
	for _, inCommit := range []bool{true, false} {
		ran := proxy.Strand
		if !inCommit {
			proxy.Strand()
			ran = func() {}
		}
		if took, err := update(300*time.Millisecond, ran); err == nil || took > 2*time.Second {
			t.Errorf("in commit %v: it took %v, error %v", inCommit, took, err)
		}
		if took, err := update(5*time.Second, func() {}); err != nil {
			t.Errorf("in commit %v: after %v the next one failed: %v", inCommit, took, err)
		}
	}
}

func poll(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it did not come to that within 20 seconds")
		}
	}
}

// An update that only queues statements needs one round trip, including its proof.
func TestQueuedUpdateIsOneRoundTrip(t *testing.T) {
	p := dbtest.Proxy(t)
	want := 1
	if dbtest.Pooled() {
		want = 2 // see TestRoundTripsWithPooler
	}
	d, err := db.Open(t.Context(), dbtest.Through(p, db.Options{MaxConns: 1}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	makeTable(t, d)
	least := 100
	for i := range 10 { // some updates need more round trips to prepare statements or to check idle connections
		ran, before := 0, p.Requests()
		if err := d.Update(t.Context(), prove(t.Context(), strings.Repeat("x", i+1), &ran)); err != nil {
			t.Fatal(err)
		}
		least = min(least, p.Requests()-before)
	}
	if least != want {
		t.Errorf("%d round trips, want %d", least, want)
	}
}

// If the answers to shared transactions are lost, each of their updates is stored once and succeeds.
func TestManyLostAnswers(t *testing.T) {
	d, proxy := dbtest.Proxied(t, 0)
	makeTable(t, d)
	proxy.LoseAnswers(20)
	var wg sync.WaitGroup
	for i := range 2000 {
		wg.Go(func() {
			id := fmt.Sprintf("%d", i)
			err := d.UpdateTogether(t.Context(), db.Accepting, func(tx *db.Tx) error {
				tx.Proof(`SELECT 1 FROM things WHERE id = $1`, id)
				tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, TRUE, '')`, id, i)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := count(t, d.Reader); n != 2000 || proxy.Lost() != 20 {
		t.Errorf("%d rows and %d lost answers, want 2000 and 20", n, proxy.Lost())
	}
}

// outages lists the ways in which PostgreSQL can be unavailable.
var outages = map[string]func(*pgproxy.Proxy){
	"refused":                (*pgproxy.Proxy).Refuse,
	"silent":                 (*pgproxy.Proxy).Hang,
	"starting up":            func(p *pgproxy.Proxy) { p.TurnAway("57P03"); p.Cut() },
	"out of connections":     func(p *pgproxy.Proxy) { p.TurnAway("53300"); p.Cut() },
	"cut in answers":         func(p *pgproxy.Proxy) { p.Tear(0, -1) },
	"cut before each COMMIT": func(p *pgproxy.Proxy) { p.DropCommits(1000) },
}

// In every outage, reads and writes fail within a bounded time with the same kind of error, and succeed again on the
// same pool after the outage.
func TestOutages(t *testing.T) {
	for name, begin := range outages {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, proxy := dbtest.Proxied(t, time.Second)
			makeTable(t, d)
			if err := insert(t.Context(), d, "there", "there", 1); err != nil {
				t.Fatal(err)
			}
			begin(proxy)
			ctx := t.Context()
			var n int
			doing := map[string]func() error{
				"a row": func() error { return d.QueryRow(ctx, `SELECT n FROM things`).Scan(&n) },
				"rows": func() error {
					rows, err := d.Query(ctx, `SELECT n FROM things`)
					_, err = db.Collect(rows, err, func(r db.Row) (n int, err error) { return n, r.Scan(&n) })
					return err
				},
				"ready": func() error { return d.Ready(ctx) },
				"a read in an update": func() error {
					return d.Update(ctx, func(tx *db.Tx) error {
						if err := tx.QueryRow(ctx, `SELECT n FROM things`).Scan(&n); err != nil {
							return fmt.Errorf("look: %w", err)
						}
						tx.Queue(ctx, `UPDATE things SET n = n`)
						return nil
					})
				},
				"a write": func() error {
					return d.Update(ctx, func(tx *db.Tx) error {
						_, err := tx.Exec(ctx, `UPDATE things SET n = n`)
						return err
					})
				},
				"a queued write": func() error {
					return d.Update(ctx, func(tx *db.Tx) error { tx.Queue(ctx, `UPDATE things SET n = n`); return nil })
				},
				"a shared write": func() error {
					return d.UpdateTogether(ctx, db.Accepting,
						func(tx *db.Tx) error { tx.Queue(ctx, `UPDATE things SET n = n`); return nil })
				},
			}
			for what, do := range doing {
				err := do()
				if name == "cut before each COMMIT" && err == nil && (what == "a row" || what == "rows" || what == "ready") {
					continue
				}
				if fault.KindOf(err) != fault.Unavailable || !errors.Is(err, db.ErrUnavailable) && !errors.Is(err, db.ErrUnknown) {
					t.Errorf("%s: %v (%#v), want unavailable", what, err, errors.Unwrap(err))
				}
			}
			if err := proxy.Pass(); err != nil {
				t.Fatal(err)
			}
			poll(t, func() bool { return d.Ready(ctx) == nil })
			for what, do := range doing {
				var err error
				poll(t, func() bool { err = do(); return !errors.Is(err, db.ErrUnavailable) })
				if err != nil {
					t.Errorf("%s, afterwards: %v", what, err)
				}
			}
		})
	}
}

// If the server has become a standby, the node is not ready, reads succeed, and writes fail with an error that allows a
// retry.
func TestReadOnlyServer(t *testing.T) {
	url := dbtest.PostgresURL(t)
	makeTable(t, dbtest.Open(t, url))
	d, err := db.Open(t.Context(), db.Options{URL: url + "&default_transaction_read_only=on",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	if n := count(t, d.Reader); n != 0 {
		t.Errorf("%d rows", n)
	}
	if err := d.Ready(t.Context()); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("ready: %v", err)
	}
	if err := insert(t.Context(), d, "a", "a", 1); !errors.Is(err, db.ErrUnavailable) {
		t.Errorf("insert: %v", err)
	}
}

// Reads and updates return the error from a faulty statement unchanged, not as an outage.
func TestFaultyStatementIsNoOutage(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		var n int
		for what, err := range map[string]error{
			"read": d.QueryRow(t.Context(), `SELECT nothing FROM things`).Scan(&n),
			"write": d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(),
					`DELETE FROM nothing`)
				return err
			}),
			"queue":   d.Update(t.Context(), func(tx *db.Tx) error { tx.Queue(t.Context(), `DELETE FROM nothing`); return nil }),
			"no rows": d.QueryRow(t.Context(), `SELECT n FROM things`).Scan(&n),
		} {
			if err == nil || fault.KindOf(err) != fault.Internal || errors.Is(err, db.ErrUnavailable) ||
				errors.Is(err, db.ErrUnknown) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// The server rolls back an idle transaction after Postrider's time limit or the operator's, whichever is shorter.
func TestTransactionThatStandsStill(t *testing.T) {
	url := dbtest.PostgresURL(t)
	makeTable(t, dbtest.Open(t, url))
	for _, limit := range []string{"0", "100", "86400000"} { // milliseconds
		d, err := db.Open(t.Context(), db.Options{URL: url + "&idle_in_transaction_session_timeout=" + limit,
			Patience: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.Close)
		began := time.Now()
		err = d.Update(t.Context(), func(tx *db.Tx) error {
			if _, err := tx.Exec(t.Context(),
				`INSERT INTO things (id, name, n, ok, raw) VALUES ('a', 'a', 1, TRUE, '')`); err != nil {
				return err
			}
			var left int
			for left = 1; left > 0; {
				if err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'idle in transaction'
					AND datname = current_database()`).Scan(&left); err != nil {
					return err
				}
				if time.Since(began) > 10*time.Second {
					return errors.New("it may stand still for ten seconds")
				}
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('b', 'b', 2, TRUE, '')`)
			return err
		})
		took := time.Since(began)
		if !errors.Is(err, db.ErrUnavailable) || errors.Is(err, db.ErrUnknown) || count(t, d.Reader) != 0 {
			t.Errorf("limit %s: error %v, %d rows; want unavailable, none", limit, err, count(t, d.Reader))
		}
		if shorter := took < 2*time.Second; shorter != (limit == "100") {
			t.Errorf("limit %s: it was ended after %v", limit, took)
		}
	}
}

// An address that cannot be reached ends Open with one line that names the setting.
func TestUnreachable(t *testing.T) {
	_, err := db.Open(t.Context(), db.Options{URL: "postgres://nobody@127.0.0.1:1/none", Setting: "--to"})
	if err == nil || !strings.HasPrefix(err.Error(), "reach the database that --to names: ") ||
		strings.Count(err.Error(), "refused") != 1 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}
