package dbtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// reusable is a PostgreSQL database with open connections, which several tests use one after another.
type reusable struct {
	name    string
	d       *db.DB
	schema  string            // result of schemaOf when the database was created
	initial map[string]string // rows that migrations insert, as one JSON array for each non-empty table
}

// idle contains the reusable databases that are empty and that no test uses.
var idle struct {
	sync.Mutex
	all []*reusable
}

// reuse returns an empty database for the test. The test may borrow the connections of d, or open other connections.
// After the test, the database is emptied for the next test. The database is dropped instead if the test failed,
// changed the schema, wrote very many rows, or left connections open.
func reuse(t testing.TB) *reusable {
	t.Helper()
	idle.Lock()
	var r *reusable
	if n := len(idle.all); n > 0 {
		r, idle.all = idle.all[n-1], idle.all[:n-1]
	}
	idle.Unlock()
	if r == nil {
		var err error
		if r, err = newReusable(template(t)); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() || r.empty(context.Background()) != nil {
			r.remove()
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.all = append(idle.all, r)
	})
	return r
}

// newReusable creates a database as a copy of template and opens it.
func newReusable(template string) (*reusable, error) {
	ctx := context.Background()
	name, err := createDatabase(template)
	if err != nil {
		return nil, err
	}
	r := &reusable{name: name}
	o := throughPooler(db.Options{URL: borrowedURL(name), MaxConns: maxConns, Log: slog.New(slog.DiscardHandler)})
	if r.d, err = db.Open(ctx, o); err != nil {
		return nil, err
	}
	if r.schema, err = r.schemaOf(ctx); err != nil {
		return nil, err
	}
	r.initial, err = r.initialRows(ctx)
	return r, err
}

// initialRows reads the rows in a new database.
func (r *reusable) initialRows(ctx context.Context) (map[string]string, error) {
	rows, err := r.d.Query(ctx, `SELECT relname::TEXT FROM pg_class WHERE `+usedTables)
	tables, err := db.Collect(rows, err, func(r db.Row) (name string, err error) {
		err = r.Scan(&name)
		return name, err
	})
	all := map[string]string{}
	for _, table := range tables {
		var text string
		if err == nil {
			err = r.d.QueryRow(ctx, `SELECT COALESCE(JSON_AGG(x), '[]')::TEXT FROM `+table+` x`).Scan(&text)
		}
		if text != "[]" {
			all[table] = text
		}
	}
	return all, err
}

// usedTables is an SQL condition on pg_class that selects the tables whose files are not empty.
const usedTables = `relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> 'migrations'
	AND pg_relation_size(oid) > 0`

// schemaOf returns a string that changes if the schema or the statistics change, or if a table becomes too large to be
// emptied quickly.
func (r *reusable) schemaOf(ctx context.Context) (text string, err error) {
	const first = 16384 // PostgreSQL's system objects have smaller ids
	err = r.d.QueryRow(ctx, `SELECT CONCAT_WS(' ',
		(SELECT CONCAT_WS(' ', COUNT(*), SUM(xmin::TEXT::BIGINT), SUM(reltuples),
			COUNT(*) FILTER (WHERE relkind = 'r' AND pg_relation_size(oid) > 1000000)) FROM pg_class WHERE oid >= $1),
		(SELECT CONCAT_WS(' ', COUNT(*), SUM(xmin::TEXT::BIGINT)) FROM pg_attribute WHERE attrelid >= $1),
		(SELECT COUNT(*) FROM pg_trigger WHERE oid >= $1), (SELECT COUNT(*) FROM pg_proc WHERE oid >= $1))`,
		int64(first)).Scan(&text)
	return text, err
}

const (
	ownName   = "dbtest"        // application_name of the connections that tests borrow
	leaveTime = 5 * time.Second // time limit for other connections to end
)

// awaitAlone waits until only the connections that tests borrow are open.
func (r *reusable) awaitAlone(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, leaveTime)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		var others int
		err := r.d.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database()
			AND application_name <> $1 AND NOT (usename = $2 AND xact_start IS NULL)`, ownName, pooledUser).Scan(&others)
		if err != nil || others == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d connections are still open", others)
		case <-tick.C:
		}
	}
}

// empty deletes the rows in all tables, except for the rows that a new database contains. If the next test cannot use
// the database, empty returns an error.
func (r *reusable) empty(ctx context.Context) error {
	if err := r.awaitAlone(ctx); err != nil {
		return err
	}
	schema, err := r.schemaOf(ctx)
	if err != nil {
		return err
	}
	if schema != r.schema {
		return fmt.Errorf("the schema was %q and is %q", r.schema, schema)
	}
	return r.d.Update(ctx, func(tx *db.Tx) error {
		tx.Queue(ctx, `SET LOCAL session_replication_role = replica`) // the deletion does not check foreign keys
		tx.Queue(ctx, `DO $$ DECLARE t REGCLASS; BEGIN
			FOR t IN SELECT oid FROM pg_class WHERE `+usedTables+` LOOP EXECUTE 'DELETE FROM ' || t; END LOOP; END $$`)
		for table, rows := range r.initial {
			tx.Queue(ctx, `INSERT INTO `+table+` SELECT * FROM JSON_POPULATE_RECORDSET(NULL::`+table+`, $1)`, rows)
		}
		return nil
	})
}

// remove closes and drops the database.
func (r *reusable) remove() {
	r.d.Close()
	if err := dropDatabase(r.name); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
	}
}

// removeIdle drops all idle reusable databases after the tests have ended.
func removeIdle() {
	idle.Lock()
	defer idle.Unlock()
	for _, r := range idle.all {
		r.remove()
	}
	idle.all = nil
}
