package db_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

var (
	insertThing = db.InsertStatement(`things (id, n, x, label, raw, made)`, `$1, $2, 7, $3, $4, $2`,
		`UUID BIGINT TEXT BYTEA`)
	raiseThing = db.NewRowStatement(`UPDATE things SET n = $2, label = label || $3 WHERE id = $1 AND n < $2`,
		`UPDATE things SET n = u.n, label = things.label || u.label
		FROM UNNEST(CAST($1 AS UUID[]), CAST($2 AS BIGINT[]), CAST($3 AS TEXT[])) AS u (id, n, label)
		WHERE things.id = ANY($1) AND things.id = u.id AND things.n < u.n`)
	deleteThing = db.NewRowStatement(`DELETE FROM things WHERE id = $1 AND n = $2`, `DELETE FROM things
		USING UNNEST(CAST($1 AS UUID[]), CAST($2 AS BIGINT[])) AS u (id, n)
		WHERE things.id = ANY($1) AND things.id = u.id AND things.n = u.n`)
)

// newThings makes the table of the statements above. On PostgreSQL, it has partitions for ids up to 4 and from there
// on.
func newThings(t *testing.T, d *db.DB) {
	t.Helper()
	texts := []string{`CREATE TABLE things (id BLOB PRIMARY KEY, n INTEGER NOT NULL, x INTEGER NOT NULL, label TEXT,
		raw BLOB, made INTEGER NOT NULL) STRICT`}
	if d.Engine() == "postgres" {
		texts = []string{`CREATE TABLE things (id UUID PRIMARY KEY, n BIGINT NOT NULL, x BIGINT NOT NULL, label TEXT,
			raw BYTEA, made BIGINT NOT NULL) PARTITION BY RANGE (id)`, `CREATE TABLE things_default PARTITION OF things DEFAULT`,
			fmt.Sprintf(`CREATE TABLE things_low PARTITION OF things FOR VALUES FROM ('%s') TO ('%s')`, thing(0), thing(4))}
	}
	update(t, d, func(tx *db.Tx) {
		for _, text := range texts {
			tx.Queue(t.Context(), text)
		}
	})
}

func thing(i int) db.ID { return db.ID(fmt.Sprintf("00000000-0000-7000-8000-%012d", i+1)) }

func update(t *testing.T, d *db.DB, f func(tx *db.Tx)) {
	t.Helper()
	if err := d.Update(t.Context(), func(tx *db.Tx) error { f(tx); return nil }); err != nil {
		t.Fatal(err)
	}
}

// things returns all rows, in the order of their ids.
func things(t *testing.T, d *db.DB) []string {
	t.Helper()
	rows, err := d.Query(t.Context(), `SELECT n, x, COALESCE(label, 'none'), raw IS NULL, made FROM things ORDER BY id`)
	all, err := db.Collect(rows, err, func(r db.Row) (string, error) {
		var n, x, made int
		var label string
		var null bool
		err := r.Scan(&n, &x, &label, &null, &made)
		return fmt.Sprintf("%d %d %s %t %d", n, x, label, null, made), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// The rows of a transaction have the effects that they would have one after another, also with values that are NULL,
// with repeated rows, and beside other statements.
func TestRowStatements(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		newThings(t, d)
		update(t, d, func(tx *db.Tx) {
			tx.QueueRow(ctx, insertThing, thing(0), 1, "a", []byte{1})
			tx.QueueRow(ctx, insertThing, thing(1), 2, nil, nil)
			tx.Queue(ctx, `UPDATE things SET label = 'b' WHERE label IS NULL`)
			tx.QueueRow(ctx, insertThing, thing(2), 3, "c", []byte{})
		})
		if got, want := things(t, d), []string{"1 7 a false 1", "2 7 b true 2", "3 7 c false 3"}; !slices.Equal(got, want) {
			t.Errorf("inserted: %q", got)
		}
		update(t, d, func(tx *db.Tx) {
			tx.QueueRow(ctx, raiseThing, thing(0), 5, "x")
			tx.QueueRow(ctx, raiseThing, thing(1), 9, "y")
			tx.QueueRow(ctx, raiseThing, thing(0), 4, "z") // lower than before
			tx.QueueRow(ctx, raiseThing, thing(1), 10, "w")
			tx.QueueRow(ctx, raiseThing, thing(8), 10, "nobody")
		})
		got, want := things(t, d), []string{"5 7 ax false 1", "10 7 byw true 2", "3 7 c false 3"}
		if !slices.Equal(got, want) {
			t.Errorf("raised: %q", got)
		}
		missing, other := errors.New("missing"), errors.New("other")
		err := d.Update(ctx, func(tx *db.Tx) error {
			tx.QueueOneRow(ctx, missing, deleteThing, thing(0), 5)
			tx.QueueOneRow(ctx, other, deleteThing, thing(1), 9)
			return nil
		})
		if want := map[string]error{"sqlite": other, "postgres": missing}[d.Engine()]; !errors.Is(err, want) {
			t.Errorf("a row is missing: %v", err)
		}
		if n := len(things(t, d)); n != 3 {
			t.Errorf("%d rows are left by a transaction that failed", n)
		}
		err = d.Update(ctx, func(tx *db.Tx) error {
			tx.QueueRow(ctx, deleteThing, thing(8), 1)
			tx.QueueOneRow(ctx, missing, deleteThing, thing(9), 1)
			return nil
		})
		if !errors.Is(err, missing) {
			t.Errorf("a row is missing beside one that may be missing: %v", err)
		}
		update(t, d, func(tx *db.Tx) {
			tx.QueueOneRow(ctx, missing, deleteThing, thing(0), 5)
			tx.QueueOneRow(ctx, missing, deleteThing, thing(1), 10)
			tx.QueueRow(ctx, deleteThing, thing(8), 1)
		})
		if got := things(t, d); !slices.Equal(got, []string{"3 7 c false 3"}) {
			t.Errorf("deleted: %q", got)
		}
	})
}

// A list has a maximum number of rows and a maximum size.
func TestLongRowLists(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		newThings(t, d)
		big := strings.Repeat("b", 400<<10)
		update(t, d, func(tx *db.Tx) {
			for i := range 250 {
				label := "s"
				if i%50 == 0 {
					label = big
				}
				tx.QueueRow(t.Context(), insertThing, thing(i), i, label, nil)
			}
			for i := range 250 {
				tx.QueueOneRow(t.Context(), errors.New("missing"), raiseThing, thing(i), 1000+i, "!")
			}
		})
		var n, sum, long int
		err := d.QueryRow(t.Context(), `SELECT COUNT(*), SUM(n), SUM(LENGTH(label)) FROM things`).Scan(&n, &sum, &long)
		if err != nil || n != 250 || sum != 250*1000+249*125 || long != 5*len(big)+245+250 {
			t.Errorf("%d rows with the sum %d and %d characters, %v", n, sum, long, err)
		}
	})
}

// Rows that wait for their INSERT are seen by the queries of their transaction. If one of them is refused, the
// transaction leaves nothing, and those beside it are not affected.
func TestRowsOfAFailedInsert(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		newThings(t, d)
		const n = 150
		insert := func(tx *db.Tx, from, to int) {
			for i := from; i < to; i++ {
				tx.QueueRow(ctx, insertThing, thing(i), i, "a", nil)
			}
		}
		var beside sync.WaitGroup
		beside.Go(func() { update(t, d, func(tx *db.Tx) { insert(tx, n, n+40) }) })
		err := d.Update(ctx, func(tx *db.Tx) error {
			insert(tx, 0, 70)
			var count int
			if err := tx.QueryRow(ctx, `SELECT COUNT(*) FROM things WHERE id <= $1`, thing(69)).Scan(&count); err != nil {
				return err
			}
			if count != 70 {
				t.Errorf("the transaction sees %d of its 70 rows", count)
			}
			insert(tx, 70, n)
			insert(tx, 100, 101)
			return nil
		})
		beside.Wait()
		if name, ok := d.UniqueViolation(err); !ok {
			t.Errorf("the error is %v, of the index %q", err, name)
		}
		if got := things(t, d); len(got) != 40 {
			t.Errorf("%d rows are left, want the 40 of the other transaction", len(got))
		}
	})
}

// A statement names a known partition. If the partition was dropped meanwhile, the transaction runs again and names the
// table.
func TestKnownPartitions(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		newThings(t, d)
		update(t, d, func(tx *db.Tx) {
			for i := range 8 {
				tx.QueueRow(ctx, insertThing, thing(i), i, "", nil)
			}
		})
		d.KnowPartitions([]db.Part{{Table: "things", Name: "things_low", From: thing(0), To: thing(4)}})
		want := map[bool]string{true: "things_low", false: "things"}
		for i := range 8 {
			if got := d.PartitionOf("things", thing(i)); got != want[i < 4 && d.Engine() == "postgres"] {
				t.Errorf("thing %d is in %s", i, got)
			}
		}
		if got := d.PartitionOf("things", db.NoID); got != "things" {
			t.Errorf("an early id is in %s", got)
		}
		if got := d.PartitionOf("others", thing(1)); got != "others" {
			t.Errorf("a row of another table is in %s", got)
		}
		raise := func(to int) {
			update(t, d, func(tx *db.Tx) {
				for i := range 8 {
					tx.QueueRowIn(ctx, "things", raiseThing, thing(i), to, "")
				}
			})
		}
		raised := func(to int) {
			t.Helper()
			var n int
			if err := d.QueryRow(ctx, `SELECT COUNT(*) FROM things WHERE n = $1`, to).Scan(&n); err != nil || n != 8 {
				t.Errorf("%d rows were raised to %d, %v", n, to, err)
			}
		}
		raise(10)
		raised(10)
		query := db.NewRowQuery("things", `SELECT n FROM things WHERE id = $1`, "UUID")
		read := func() (n int, err error) {
			err = d.ReadRow(ctx, query.In(d.PartitionOf("things", thing(1))), thing(1)).Scan(&n)
			return n, err
		}
		if n, err := read(); n != 10 || err != nil {
			t.Errorf("read: %d, %v", n, err)
		}
		if d.Engine() == "sqlite" {
			return
		}
		drop := func() {
			update(t, d, func(tx *db.Tx) {
				tx.Queue(ctx, `ALTER TABLE things DETACH PARTITION things_low`)
				tx.Queue(ctx, `INSERT INTO things SELECT * FROM things_low`)
				tx.Queue(ctx, `DROP TABLE things_low`)
			})
		}
		drop()
		raise(11) // the first attempt fails
		raised(11)
		if got := d.PartitionOf("things", thing(1)); got != "things" {
			t.Errorf("after the drop, statements name %s", got)
		}
		d.KnowPartitions([]db.Part{{Table: "things", Name: "things_low", From: thing(0), To: thing(4)}})
		_, err := read()
		for reader := range 2 {
			if !d.ForgetPartitions(err) {
				t.Errorf("reader %d of a dropped partition does not read again: %v", reader, err)
			}
		}
		if n, err := read(); n != 11 || err != nil {
			t.Errorf("read again: %d, %v", n, err)
		}
	})
}

// If several transactions name a partition that was dropped, each of them runs again.
func TestSeveralNameADroppedPartition(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.PostgresURL(t))
	ctx := t.Context()
	newThings(t, d)
	update(t, d, func(tx *db.Tx) { tx.QueueRow(ctx, insertThing, thing(5), 1, "", nil) })
	d.KnowPartitions([]db.Part{{Table: "things", Name: "things_gone", From: thing(5), To: thing(6)}})
	const several = 3
	var begun, ended sync.WaitGroup
	begun.Add(several)
	for i := range several {
		ended.Go(func() {
			first := true
			err := d.Update(ctx, func(tx *db.Tx) error {
				tx.QueueRowIn(ctx, "things", raiseThing, thing(5), 10+i, "")
				if first {
					first = false
					begun.Done()
					begun.Wait()
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	ended.Wait()
	var n int
	if err := d.QueryRow(ctx, `SELECT n FROM things`).Scan(&n); err != nil || n != 9+several {
		t.Errorf("the row was raised to %d, %v", n, err)
	}
}

// A table that does not exist fails a transaction at once, although partitions are known.
func TestMissingTableIsNoPartition(t *testing.T) {
	t.Parallel()
	d := dbtest.Open(t, dbtest.PostgresURL(t))
	d.KnowPartitions([]db.Part{{Table: "things", Name: "things_low", From: thing(0), To: thing(4)}})
	tries := 0
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		tries++
		tx.Queue(t.Context(), `DELETE FROM nothings`)
		return nil
	})
	if err == nil || tries != 1 || d.PartitionOf("things", thing(1)) != "things_low" {
		t.Errorf("after %d tries: %v", tries, err)
	}
}

// A row is changed after it was inserted, although the change joins changes of rows that were inserted before, and the
// row does not fit in their list or is inserted by another statement.
func TestRowsAreChangedAfterTheirInsertion(t *testing.T) {
	t.Parallel()
	insertBare := db.InsertStatement(`things (id, n, x, made)`, `$1, $2, 7, $2`, `UUID BIGINT`)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		newThings(t, d)
		const n = 6
		update(t, d, func(tx *db.Tx) {
			for i := range n {
				if i%3 == 2 {
					tx.QueueRow(t.Context(), insertBare, thing(i), i)
				} else {
					tx.QueueRow(t.Context(), insertThing, thing(i), i, strings.Repeat("x", 600_000), nil)
				}
				tx.QueueRow(t.Context(), raiseThing, thing(i), 50, "")
			}
		})
		var raised int
		err := d.QueryRow(t.Context(), `SELECT COUNT(*) FROM things WHERE n = 50`).Scan(&raised)
		if err != nil || raised != n {
			t.Errorf("%d rows were raised, %v", raised, err)
		}
	})
}
