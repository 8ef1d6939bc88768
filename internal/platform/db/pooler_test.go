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

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// openPooled opens a database through a pooler; the direct URL leads to the server itself.
func openPooled(t *testing.T, o db.Options) *db.DB {
	t.Helper()
	o.Log = slog.New(slog.DiscardHandler)
	d, err := db.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// lossy are databases behind PgBouncer with a proxy that loses commits, either before or behind PgBouncer.
var lossy = map[string]func(t *testing.T, url string) (*db.DB, *pgproxy.Proxy){
	"between node and pooler": func(t *testing.T, url string) (*db.DB, *pgproxy.Proxy) {
		proxy, err := pgproxy.StartBoth(dbtest.NewPooler(t, url, "transaction", 8).URL(url), url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		return openPooled(t, db.Options{URL: proxy.URL(), DirectURL: proxy.DirectURL(), MaxConns: 6}), proxy
	},
	"between pooler and server": func(t *testing.T, url string) (*db.DB, *pgproxy.Proxy) {
		proxy, err := pgproxy.Start(url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		pooler := dbtest.NewPooler(t, proxy.URL(), "transaction", 8)
		return openPooled(t, db.Options{URL: pooler.URL(url), DirectURL: url, MaxConns: 6}), proxy
	},
	"with a pooler in session mode": func(t *testing.T, url string) (*db.DB, *pgproxy.Proxy) {
		proxy, err := pgproxy.Start(dbtest.NewPooler(t, url, "session", 20).URL(url))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(proxy.Close)
		return openPooled(t, db.Options{URL: proxy.URL(), MaxConns: 6}), proxy
	},
}

// If commits or their answers are lost before or behind a pooler, each update that succeeds is stored once, and each
// update that fails is not stored.
func TestLostCommitsWithPooler(t *testing.T) {
	for name, open := range lossy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.PostgresURL(t)
			d, proxy := open(t, url)
			makeTable(t, d)
			for round, lose := range []func(int){proxy.LoseAnswers, proxy.DropCommits} {
				before := proxy.Lost()
				lose(20)
				var failed atomic.Int32
				var wg sync.WaitGroup
				for i := range 1000 { // more than ten shared transactions
					wg.Go(func() {
						id := fmt.Sprintf("%d-%d", round, i)
						err := d.UpdateTogether(t.Context(), db.Accepting, func(tx *db.Tx) error {
							tx.Proof(`SELECT 1 FROM things WHERE id = $1`, id)
							tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, $3, '')`, id, i,
								round == 0)
							return nil
						})
						stored := 0
						if e := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM things WHERE id = $1`, id).Scan(&stored); e != nil {
							t.Error(e)
						}
						switch {
						case err == nil && stored == 1:
						case errors.Is(err, db.ErrUnavailable) && stored == 0:
							failed.Add(1)
						default:
							t.Errorf("%s: error %v, %d rows", id, err, stored)
						}
					})
				}
				wg.Wait()
				if lost := proxy.Lost() - before; lost < 10 || round == 0 && failed.Load() > 0 {
					t.Errorf("round %d: %d commits were lost, %d updates failed", round, lost, failed.Load())
				}
				if err := proxy.Pass(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// After a transaction, a pooler gives the server process to another client. A node that looks for the transaction
// afterwards neither waits for the other client's transactions nor terminates them.
func TestSettleSparesOthersSessions(t *testing.T) {
	url := dbtest.PostgresURL(t)
	pooler := dbtest.NewPooler(t, url, "transaction", 2)
	proxy, err := pgproxy.StartBoth(pooler.URL(url), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	mine := openPooled(t, db.Options{URL: proxy.URL(), DirectURL: proxy.DirectURL(), MaxConns: 2, Patience: 4 * time.Second})
	others := openPooled(t, db.Options{URL: pooler.URL(url), DirectURL: url, MaxConns: 6})
	direct := dbtest.Open(t, url)
	makeTable(t, direct)
	if err := insert(t.Context(), direct, "locked", "locked", 100); err != nil {
		t.Fatal(err)
	}
	held, free, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		err := direct.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE things SET ok = FALSE WHERE id = 'locked'`)
			close(held)
			<-free
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	// The proof never finds a row, so the node depends on the server process.
	proxy.LoseAnswers(1)
	var ran atomic.Int32
	wg.Go(func() {
		defer close(over)
		err := mine.Update(t.Context(), func(tx *db.Tx) error {
			ran.Add(1)
			tx.Proof(`SELECT 1 FROM things WHERE id = 'none'`)
			tx.Queue(t.Context(), `UPDATE things SET n = n + 1 WHERE id = 'locked'`)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	poll(t, func() bool { return proxy.Commits() > 0 })
	for range 4 {
		wg.Go(func() {
			for done := false; !done; {
				select {
				case <-over:
					done = true
				default:
				}
				ran := 0 // an update whose session is terminated runs again
				err := others.Update(t.Context(), func(tx *db.Tx) error {
					ran++
					_, err := tx.Exec(t.Context(), `SELECT pg_sleep(0.2)`)
					return err
				})
				if err != nil || ran != 1 {
					t.Errorf("another client's transaction ran %d times: %v", ran, err)
				}
			}
		})
	}
	close(free)
	wg.Wait()
	if ran.Load() != 2 {
		t.Errorf("it ran %d times, want 2", ran.Load())
	}
}

// Behind a pooler, each transaction has the node's settings, and other users of the session do not have them.
func TestSettingsWithPooler(t *testing.T) {
	url := dbtest.PostgresURL(t)
	pooler := dbtest.NewPooler(t, url, "transaction", 1)
	d := openPooled(t, db.Options{URL: pooler.URL(url), DirectURL: url, Patience: 2 * time.Second})
	direct := dbtest.Open(t, url)
	makeTable(t, d)
	const ask = `SELECT current_setting('jit') || ' ' || current_setting('idle_in_transaction_session_timeout')`
	var inside, long, outside string
	err := d.Update(t.Context(), func(tx *db.Tx) error { return tx.QueryRow(t.Context(), ask).Scan(&inside) })
	if err != nil || inside != "off 2s" {
		t.Errorf("in a transaction: %q, %v", inside, err)
	}
	err = d.ReadLong(t.Context(), db.Long{Owner: "a"}, func(ctx context.Context, r db.Reader) error {
		return r.QueryRow(ctx, ask).Scan(&long)
	})
	if err != nil || long != "off 2s" {
		t.Errorf("in a long read: %q, %v", long, err)
	}
	if err := d.QueryRow(t.Context(), ask).Scan(&outside); err != nil || !strings.HasSuffix(outside, " 0") {
		t.Errorf("outside: %q, %v", outside, err)
	}
	err = d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('a', 'a', 1, TRUE, '')`); err != nil {
			return err
		}
		poll(t, func() bool {
			var left int
			err := direct.QueryRow(t.Context(), `SELECT COUNT(*) FROM pg_stat_activity
				WHERE state = 'idle in transaction' AND datname = current_database()`).Scan(&left)
			return err == nil && left == 0
		})
		_, err := tx.Exec(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('b', 'b', 2, TRUE, '')`)
		return err
	})
	if !errors.Is(err, db.ErrUnavailable) || count(t, d.Reader) != 0 {
		t.Errorf("a transaction that stands still: %v, %d rows", err, count(t, d.Reader))
	}
}

// Hints and heartbeats do not depend on the pooler's sessions: they work while all of them are in use.
func TestDirectConnectionsWithPooler(t *testing.T) {
	url := dbtest.PostgresURL(t)
	pooler := dbtest.NewPooler(t, url, "transaction", 2)
	o := db.Options{URL: pooler.URL(url), DirectURL: url}
	a, b := openPooled(t, o), openPooled(t, o)
	makeTable(t, a)
	got := make(chan string, 100)
	b.OnHint("work", func(p string) { got <- p })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { a.Run(ctx) })
	wg.Go(func() { b.Run(ctx) })
	poll(t, func() bool {
		a.Hint("work", "lane 1")
		return len(got) > 0
	})
	if p := <-got; p != "lane 1" {
		t.Errorf("payload %q", p)
	}
	free := make(chan struct{})
	var held sync.WaitGroup
	for range 2 {
		held.Add(1)
		wg.Go(func() {
			err := a.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT 1`)
				held.Done()
				<-free
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	defer close(free)
	held.Wait()
	err := b.UpdateApart(t.Context(), func(tx *db.Tx) error {
		tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ('a', 'a', 1, TRUE, '')`)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// A node does not start if its addresses do not fit each other.
func TestAddressesThatDoNotFit(t *testing.T) {
	url, other := dbtest.PostgresURL(t), dbtest.PostgresURL(t)
	user := dbtest.NewRole(t)
	for _, tc := range []struct{ name, url, direct, want string }{
		{"other database", "POOLER", other, "another database"},
		{"pooler only", "POOLER", "", "also set database_direct_url"},
		{"pooler twice", "POOLER", "POOLER", "database_direct_url leads to a connection pooler"},
		{"user without rights", "POOLER", strings.Replace(url, "//postgres@", "//"+user+"@", 1),
			"GRANT pg_read_all_stats"},
		{"setting in the URL", "POOLER&jit=off", url, "ALTER ROLE"},
		{"no server", "POOLER", "postgres://postgres@127.0.0.1:1/x?sslmode=disable", "database_direct_url names"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			// Each case has a pooler of its own: the sessions that a client gets depend on the other clients.
			pooler := dbtest.NewPooler(t, url, "transaction", 5).URL(url)
			d, err := db.Open(t.Context(), db.Options{URL: strings.Replace(tc.url, "POOLER", pooler, 1),
				DirectURL: strings.Replace(tc.direct, "POOLER", pooler, 1)})
			if err == nil {
				d.Close()
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}

// An update with a proof that only queues statements needs two round trips behind a pooler; other updates need one.
func TestRoundTripsWithPooler(t *testing.T) {
	url := dbtest.PostgresURL(t)
	proxy, err := pgproxy.StartBoth(dbtest.NewPooler(t, url, "transaction", 5).URL(url), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	d := openPooled(t, db.Options{URL: proxy.URL(), DirectURL: proxy.DirectURL(), MaxConns: 1})
	makeTable(t, d)
	for proves, want := range map[bool]int{true: 2, false: 1} {
		least := 100
		for i := range 10 {
			before := proxy.Requests()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				id := fmt.Sprint(proves, i)
				if proves {
					tx.Proof(`SELECT 1 FROM things WHERE id = $1`, id)
				}
				tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, $2, $3, '')`, id, i, proves)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			least = min(least, proxy.Requests()-before)
		}
		if least != want {
			t.Errorf("proof %v: %d round trips, want %d", proves, least, want)
		}
	}
}
