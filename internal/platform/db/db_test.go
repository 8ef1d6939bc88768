package db_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

func makeTable(t *testing.T, d *db.DB) {
	t.Helper()
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		if _, err := tx.Exec(t.Context(), `CREATE TABLE things (id TEXT PRIMARY KEY, name TEXT NOT NULL, n BIGINT NOT NULL,
			ok BOOLEAN NOT NULL, raw BYTEA NOT NULL)`); err != nil {
			return err
		}
		if _, err := tx.Exec(t.Context(), `CREATE UNIQUE INDEX things_lower ON things (lower(name))`); err != nil {
			return err
		}
		_, err := tx.Exec(t.Context(), `CREATE UNIQUE INDEX things_n ON things (n, ok)`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func insert(ctx context.Context, d *db.DB, id, name string, n int) error {
	return d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $2, $3, $4, $5)`, id, name, n, true,
			[]byte{0, 1, 255})
		return nil
	})
}

func count(t *testing.T, r db.Reader) (n int) {
	t.Helper()
	if err := r.QueryRow(t.Context(), `SELECT COUNT(*) FROM things`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestUpdate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		if err := insert(ctx, d, "a", "Ann", 1); err != nil {
			t.Fatal(err)
		}
		var name string
		var ok bool
		var raw []byte
		if err := d.QueryRow(ctx, `SELECT name, ok, raw FROM things WHERE n = $2 AND id = $1`, "a", 1).Scan(&name, &ok,
			&raw); err != nil {
			t.Fatal(err)
		}
		if name != "Ann" || !ok || string(raw) != "\x00\x01\xff" {
			t.Errorf("read back %q %v %q", name, ok, raw)
		}

		t.Run("an error leaves nothing behind", func(t *testing.T) {
			boom := errors.New("boom")
			err := d.Update(ctx, func(tx *db.Tx) error {
				if _, err := tx.Exec(ctx, `DELETE FROM things`); err != nil {
					return err
				}
				return boom
			})
			if !errors.Is(err, boom) || count(t, d.Reader) != 1 {
				t.Errorf("err %v, %d rows", err, count(t, d.Reader))
			}
		})
		t.Run("a panic leaves nothing behind and the writer goes on", func(t *testing.T) {
			err := d.Update(ctx, func(tx *db.Tx) error {
				tx.Queue(ctx, `DELETE FROM things`)
				panic("oops")
			})
			if err == nil || count(t, d.Reader) != 1 {
				t.Errorf("err %v, %d rows", err, count(t, d.Reader))
			}
		})
		t.Run("a transaction reads what it queued", func(t *testing.T) {
			err := d.Update(ctx, func(tx *db.Tx) error {
				tx.Queue(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $2, $3, $4, $5)`, "q", "Q", 9, false, []byte{})
				if n := count(t, tx.Reader); n != 2 {
					t.Errorf("%d rows in the transaction, want 2", n)
				}
				n, err := tx.Exec(ctx, `DELETE FROM things WHERE id = $1`, "q")
				if n != 1 {
					t.Errorf("deleted %d, want 1", n)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	})
}

func TestHooksAndMissingRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx, name := t.Context(), ""
		if err := insert(ctx, d, "a", "Ann", 1); err != nil {
			t.Fatal(err)
		}
		t.Run("hooks run after the commit and not after a failure", func(t *testing.T) {
			ran := 0
			d.Update(ctx, func(tx *db.Tx) error { tx.AfterCommit(func() { ran++ }); return nil })
			d.Update(ctx, func(tx *db.Tx) error { tx.AfterCommit(func() { ran += 10 }); return errors.New("no") })
			if ran != 1 {
				t.Errorf("ran = %d, want 1", ran)
			}
		})
		t.Run("no rows", func(t *testing.T) {
			if err := d.QueryRow(ctx, `SELECT name FROM things WHERE id = $1`, "nobody").Scan(&name); !errors.Is(err,
				db.ErrNoRows) {
				t.Errorf("err = %v, want ErrNoRows", err)
			}
			d.Update(ctx, func(tx *db.Tx) error {
				if err := tx.QueryRow(ctx, `SELECT name FROM things WHERE id = $1`, "nobody").Scan(&name); !errors.Is(err,
					db.ErrNoRows) {
					t.Errorf("in a transaction err = %v, want ErrNoRows", err)
				}
				return nil
			})
		})
		t.Run("readers cannot write", func(t *testing.T) {
			if d.Engine() != "sqlite" {
				return // the PostgreSQL pool can write; only the Reader type prevents writes
			}
			if rows, err := d.Query(ctx, `DELETE FROM things RETURNING id`); err == nil {
				for rows.Next() {
					t.Error("a reader deleted a row")
				}
				if rows.Err() == nil {
					t.Error("a reader may delete")
				}
				rows.Close()
			}
		})
	})
}

func TestUniqueViolation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		if err := insert(t.Context(), d, "a", "Ann", 1); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			id, name string
			n        int
			want     string
		}{
			{"a", "Bob", 2, "things_pkey"},
			{"b", "ANN", 2, "things_lower"},
			{"b", "Bob", 1, "things_n"},
		} {
			err := insert(t.Context(), d, c.id, c.name, c.n)
			if got, ok := d.UniqueViolation(err); !ok || got != c.want {
				t.Errorf("%v: index %q %v, want %s", err, got, ok, c.want)
			}
		}
		if _, ok := d.UniqueViolation(errors.New("UNIQUE constraint failed: things.id")); ok {
			t.Error("an error's text must not decide")
		}
		if n := count(t, d.Reader); n != 1 {
			t.Errorf("%d rows, want 1", n)
		}
	})
}

// Concurrent updates share commits, but each update succeeds or fails independently.
func TestConcurrentUpdates(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		var wg sync.WaitGroup
		for w := range 16 {
			wg.Go(func() {
				for i := range 25 {
					n := w*25 + i
					err := insert(t.Context(), d, fmt.Sprint(n), fmt.Sprint("name", n), n)
					if err != nil {
						t.Error(err)
					}
					if _, dup := d.UniqueViolation(insert(t.Context(), d, fmt.Sprint(n), "x", -n-1)); !dup {
						t.Error("a second row with the same id was accepted")
					}
				}
			})
		}
		wg.Wait()
		if n := count(t, d.Reader); n != 400 {
			t.Errorf("%d rows, want 400", n)
		}
	})
}

// A statement with a fence fails the whole transaction if its row no longer exists.
func TestQueueOne(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx, gone := t.Context(), errors.New("gone")
		for i, id := range []string{"a", "b"} {
			if err := insert(ctx, d, id, id, i); err != nil {
				t.Fatal(err)
			}
		}
		try := func(id string) error {
			return d.Update(ctx, func(tx *db.Tx) error {
				tx.Queue(ctx, `UPDATE things SET n = n + 10`)
				tx.QueueOne(ctx, gone, `DELETE FROM things WHERE id = $1`, id)
				tx.Queue(ctx, `UPDATE things SET n = n + 10`)
				return nil
			})
		}
		if err := try("x"); !errors.Is(err, gone) {
			t.Errorf("a row that is not there: %v", err)
		}
		if err := try("a"); err != nil {
			t.Error(err)
		}
		var n int
		if err := d.QueryRow(ctx, `SELECT n FROM things`).Scan(&n); err != nil || n != 21 {
			t.Errorf("the row that is left has %d, want 21; %v", n, err)
		}
		err := d.Update(ctx, func(tx *db.Tx) error {
			tx.QueueOne(ctx, gone, `DELETE FROM things WHERE id = $1`, "x")
			return tx.QueryRow(ctx, `SELECT n FROM things`).Scan(&n)
		})
		if !errors.Is(err, gone) {
			t.Errorf("seen with a later answer: %v", err)
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			tx.QueueOne(ctx, gone, `UPDATE things SET n = n / 0 WHERE id = $1`, "b")
			tx.Queue(ctx, `INSERT INTO things (id) VALUES ('c')`)
			return nil
		})
		if err == nil {
			t.Error("a statement that fails went unseen")
		}
	})
}

// Each of several simultaneous updates succeeds or fails independently, and runs its AfterCommit functions once.
func TestUpdatesTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx, boom := t.Context(), errors.New("boom")
		const n = 200
		var committed atomic.Int64
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() {
				bad := i%7 == 0
				err := d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
					name := fmt.Sprint("t", i)
					if _, err := tx.Exec(ctx, `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $2, $3, $4, $5)`, name, name, i,
						true, []byte{}); err != nil {
						return err
					}
					tx.AfterCommit(func() { committed.Add(1) })
					if bad {
						return boom
					}
					return nil
				})
				if bad != errors.Is(err, boom) || !bad && err != nil {
					t.Errorf("update %d: %v", i, err)
				}
			})
		}
		all.Wait()
		want := n - (n+6)/7
		if got := count(t, d.Reader); got != want || committed.Load() != int64(want) {
			t.Errorf("%d rows, %d told of their commit, want %d", got, committed.Load(), want)
		}
		ended, end := context.WithCancel(ctx)
		end()
		if err := d.UpdateTogether(ended, db.Recording, func(*db.Tx) error { return nil }); !errors.Is(err,
			context.Canceled) {
			t.Errorf("after its context has ended: %v", err)
		}
	})
}

func TestCancelledUpdateDoesNothing(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := insert(ctx, d, "a", "Ann", 1); !errors.Is(err, context.Canceled) {
			t.Errorf("err = %v", err)
		}
		if n := count(t, d.Reader); n != 0 {
			t.Errorf("%d rows, want 0", n)
		}
	})
}

// TestMigrationNumbers checks that no two migrations of an engine have the same number, so that their order is
// unambiguous.
func TestMigrationNumbers(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"sqlite", "postgres"} {
		files, err := filepath.Glob("migrations/" + engine + "/*.sql")
		if err != nil || len(files) == 0 {
			t.Fatalf("%d migrations, %v", len(files), err)
		}
		seen := map[string]string{}
		for _, f := range files {
			number, _, _ := strings.Cut(filepath.Base(f), "_")
			if old, ok := seen[number]; ok {
				t.Errorf("%s and %s have one number", old, f)
			}
			seen[number] = f
		}
	}
}

// TestOlderSchema checks that a database of a build before the first release is refused and left as it is.
func TestOlderSchema(t *testing.T) {
	for engine, url := range map[string]string{"sqlite": filepath.Join(t.TempDir(), "test.db"),
		"postgres": dbtest.EmptyPostgresURL(t)} {
		d := dbtest.Open(t, url)
		exec := func(text string, args ...any) {
			t.Helper()
			if err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), text, args...)
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		exec(`CREATE TABLE migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL, applied_at BIGINT NOT NULL)`)
		exec(`CREATE TABLE teams (id TEXT PRIMARY KEY)`)
		exec(`INSERT INTO teams (id) VALUES ('a team')`)
		for _, name := range []string{"0001_teams", "0161_bodies_in_emails"} {
			exec(`INSERT INTO migrations (name, checksum, applied_at) VALUES ($1, '', 0)`, name)
		}
		_, err := d.Migrate(t.Context())
		if err == nil || !strings.Contains(err.Error(), "before the first release") ||
			!strings.Contains(err.Error(), "postrider export") {
			t.Errorf("%s: an older database is migrated: %v", engine, err)
		}
		var team string
		if err := d.QueryRow(t.Context(), `SELECT id FROM teams`).Scan(&team); err != nil || team != "a team" {
			t.Errorf("%s: the database has changed: %q, %v", engine, team, err)
		}
	}
}

// TestTablesOfBothEngines checks that both engines have the same tables with the same columns, apart from those that
// one engine has for a reason of its own.
func TestTablesOfBothEngines(t *testing.T) {
	only := map[string]string{
		"hints":              "sqlite",   // PostgreSQL has NOTIFY
		"contact_texts head": "postgres", // its indexes cannot hold long values
		"emails parts":       "postgres", // the body is in the email's row; on SQLite, it is in email_bodies
		"emails headers":     "postgres",
		"emails html":        "postgres",
		"emails body_text":   "postgres",
	}
	columns := map[string]map[string]bool{}
	for _, d := range []*db.DB{dbtest.SQLite(t), dbtest.Postgres(t)} {
		query := `SELECT m.name, p.name FROM sqlite_schema m, pragma_table_info(m.name) p WHERE m.type = 'table'`
		if d.Engine() == "postgres" {
			query = `SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT) FROM information_schema.columns
				WHERE table_schema = 'public' AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)`
		}
		rows, err := d.Query(t.Context(), query)
		all, err := db.Collect(rows, err, func(r db.Row) ([2]string, error) {
			var names [2]string
			return names, r.Scan(&names[0], &names[1])
		})
		if err != nil {
			t.Fatal(err)
		}
		have := map[string]bool{}
		for _, names := range all {
			table, column := names[0], names[0]+" "+names[1]
			if only[table] != d.Engine() && only[column] != d.Engine() {
				have[column] = true
			}
		}
		columns[d.Engine()] = have
	}
	if diff := cmp.Diff(columns["sqlite"], columns["postgres"]); diff != "" || len(columns["sqlite"]) < 500 {
		t.Errorf("%d columns with SQLite; with PostgreSQL: %s", len(columns["sqlite"]), diff)
	}
}

func TestMigrateTwice(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		applied, err := d.Migrate(t.Context())
		if err != nil || len(applied) != 0 {
			t.Errorf("a second Migrate applied %v, %v", applied, err)
		}
	})
}

// If several nodes start at the same time on an empty database, one node applies the migrations and the others wait for
// it.
func TestNodesMigrateTogether(t *testing.T) {
	url := dbtest.EmptyPostgresURL(t)
	var wg sync.WaitGroup
	var migrated atomic.Int32
	for range 4 {
		d := dbtest.Open(t, url)
		wg.Go(func() {
			applied, err := d.Migrate(t.Context())
			if err != nil {
				t.Error(err)
			}
			if len(applied) > 0 {
				migrated.Add(1)
			}
		})
	}
	if wg.Wait(); migrated.Load() != 1 {
		t.Errorf("%d nodes applied migrations, want 1", migrated.Load())
	}
}

func TestHintsReachOtherNodes(t *testing.T) {
	url := dbtest.PostgresURL(t)
	a, b := dbtest.Open(t, url), dbtest.Open(t, url)
	got := make(chan string, 100)
	b.OnHint("work", func(p string) { got <- p })
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { a.Run(ctx) })
	wg.Go(func() { b.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	// Hints are lost until the listener has connected, so the test repeats the hint.
	for {
		a.Hint("work", "lane 1")
		select {
		case p := <-got:
			if p != "lane 1" {
				t.Errorf("payload %q", p)
			}
			return
		case <-tick(t):
		}
	}
}

// If more distinct statements run at the same time than the statement cache can hold, the cache does not close
// statements in use.
func TestMoreTextsThanAreKept(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var wg sync.WaitGroup
		for w := range 8 {
			wg.Go(func() {
				for i := range 500 {
					var got int
					text := fmt.Sprintf(`SELECT %d`, (i+w*250)%500)
					if err := d.QueryRow(t.Context(), text).Scan(&got); err != nil {
						t.Errorf("%s: %v", text, err)
						return
					}
					rows, err := d.Query(t.Context(), text)
					all, err := db.Collect(rows, err, func(r db.Row) (n int, err error) { return n, r.Scan(&n) })
					if err != nil || len(all) != 1 || all[0] != got || text != fmt.Sprint("SELECT ", got) {
						t.Errorf("%s: %v, %v", text, all, err)
						return
					}
				}
			})
		}
		wg.Wait()
	})
}

// A list of any length is passed as one parameter.
func TestLists(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		ctx := t.Context()
		names := []string{"Ann", `with "quotes" and \\ and <>&`, "Zoë\n\t\u2028", "", "4"}
		for i, name := range names {
			if err := insert(ctx, d, fmt.Sprint(i), name, i); err != nil {
				t.Fatal(err)
			}
		}
		got := func(r db.Reader, text string, args ...any) string {
			t.Helper()
			rows, err := r.Query(ctx, text, args...)
			all, err := db.Collect(rows, err, func(r db.Row) (id string, err error) { return id, r.Scan(&id) })
			if err != nil {
				t.Errorf("%s of %q: %v", text, args, err)
			}
			return strings.Join(all, "")
		}
		for _, c := range []struct {
			where string
			list  any
			want  string
		}{
			{`name = ANY($2)`, names, "01234"},
			{`name = ANY($2)`, names[1:3], "12"},
			{`name = ANY($2)`, []string{"ann", "4", "4"}, "4"},
			{`name = ANY($2)`, names[1:2], "1"},
			{`name <> ALL($2)`, names[4:], "0123"},
			{`n = ANY($2)`, []int64{2}, "2"},
			{`id IN (SELECT UNNEST(CAST($2 AS TEXT[])))`, []string{"3"}, "3"},
			{`name = ANY($2)`, []string{}, ""},
			{`name = ANY($2)`, []string(nil), ""},
			{`name <> ALL($2)`, names[1:3], "034"},
			{`name <> ALL($2)`, []string{}, "01234"},
			{`n = ANY($2)`, []int64{-1, 1, 3}, "13"},
			{`n <> ALL($2)`, []int64{1, 1 << 62}, "0234"},
			{`CAST(n AS DOUBLE PRECISION) = ANY($2)`, []float64{2}, "2"},
			{`CAST(n AS DOUBLE PRECISION) = ANY($2)`, []float64{-1, 1, 3, 2.5, 1e300}, "13"},
			{`CAST(n AS DOUBLE PRECISION) / 10 = ANY($2)`, []float64{0.1, 0.30000000000000004}, "1"},
			{`id IN (SELECT UNNEST(CAST($2 AS TEXT[])))`, []string{"0", "2", "x"}, "02"},
		} {
			text := `SELECT id FROM things WHERE ok = $1 AND ` + c.where + ` ORDER BY id`
			if ids := got(d.Reader, text, true, c.list); ids != c.want {
				t.Errorf("%s of %q finds %q, want %q", c.where, c.list, ids, c.want)
			}
			if err := d.Update(ctx, func(tx *db.Tx) error {
				if ids := got(tx.Reader, text, true, c.list); ids != c.want {
					t.Errorf("in a transaction %s of %q finds %q, want %q", c.where, c.list, ids, c.want)
				}
				return nil
			}); err != nil {
				t.Error(err)
			}
		}
		err := d.Update(ctx, func(tx *db.Tx) error {
			tx.Queue(ctx, `DELETE FROM things WHERE id = ANY($1)`, []string{"0", "1"})
			n, err := tx.Exec(ctx, `UPDATE things SET n = n + 10 WHERE id = ANY($1)`, []string{"1", "2", "3"})
			if n != 2 {
				t.Errorf("%d rows changed, want 2", n)
			}
			return err
		})
		if err != nil || count(t, d.Reader) != 3 {
			t.Errorf("%d rows are left, want 3; %v", count(t, d.Reader), err)
		}
		var id string
		err = d.QueryRow(ctx, `SELECT id FROM things WHERE name = ANY($1)`, []string{"\xff"}).Scan(&id)
		if err == nil || errors.Is(err, db.ErrNoRows) {
			t.Errorf("what is not UTF-8 was taken: %v", err)
		}
	})
}

// TestHold calls QueueHold with an existing row and with a missing row.
func TestHold(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		makeTable(t, d)
		if err := insert(t.Context(), d, "a", "a", 1); err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		for id, want := range map[string]error{"a": nil, "b": gone} {
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				tx.QueueHold(t.Context(), gone, "things", id)
				tx.Queue(t.Context(), `INSERT INTO things (id, name, n, ok, raw) VALUES ($1, $1, 2, TRUE, '')`, "after "+id)
				return nil
			})
			if !errors.Is(err, want) {
				t.Errorf("holding %q: %v, want %v", id, err, want)
			}
		}
		if n := count(t, d.Reader); n != 2 {
			t.Errorf("%d rows, want 2", n)
		}
	})
}
