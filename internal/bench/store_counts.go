package bench

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
)

// statisticsDelay is how long PostgreSQL may hold back the statistics of an idle connection.
const statisticsDelay = 11 * time.Second

// serverCounts is the work that a PostgreSQL server has done, as far as its statistics tell.
type serverCounts struct {
	inserted, updated, deleted int64 // rows of this database's tables
	statements                 int64 // without those that begin or end a transaction; -1 if unknown
	log                        int64 // bytes of the write-ahead log, of all databases
	disk                       int64 // bytes of this database's tables and indexes, without those of the queue
	queue                      int64 // bytes of the queue's table and indexes, which are used again when jobs have ended
	cpu                        map[int]time.Duration
}

// options returns the options for the benchmark's own connections to PostgreSQL.
func (b *measurement) options(conns int) db.Options {
	return db.Options{URL: b.url, DirectURL: b.directURL, MaxConns: conns, Log: slog.New(slog.DiscardHandler)}
}

// serverCounts reads the counts of the server, or nil if the benchmark measures SQLite. The counts include everything
// that the node has done before the call.
func (b *measurement) serverCounts(ctx context.Context) (*serverCounts, error) {
	if b.url == "" {
		return nil, nil
	}
	if err := pause(ctx, statisticsDelay); err != nil {
		return nil, err
	}
	d, err := db.Open(ctx, b.options(1))
	if err != nil {
		return nil, err
	}
	defer d.Close()
	c, err := readServerCounts(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read the statistics of PostgreSQL: %w", err)
	}
	return c, nil
}

func readServerCounts(ctx context.Context, d *db.DB) (*serverCounts, error) {
	c := &serverCounts{statements: -1, cpu: map[int]time.Duration{}}
	err := d.QueryRow(ctx, `SELECT SUM(n_tup_ins)::BIGINT, SUM(n_tup_upd)::BIGINT, SUM(n_tup_del)::BIGINT,
		(pg_current_wal_insert_lsn() - '0/0')::BIGINT FROM pg_stat_user_tables`).Scan(&c.inserted, &c.updated, &c.deleted,
		&c.log)
	if err != nil {
		return nil, err
	}
	sizes, err := d.Sizes(ctx)
	if err != nil {
		return nil, err
	}
	for table, size := range sizes {
		if table == "jobs" {
			c.queue = size
		} else {
			c.disk += size
		}
	}
	// The extension counts only if the server was started with it. Only a superuser may create it.
	err = d.Update(ctx, func(tx *db.Tx) error {
		if _, err := tx.Exec(ctx, `CREATE EXTENSION IF NOT EXISTS pg_stat_statements`); err != nil {
			return err
		}
		return tx.QueryRow(ctx, `SELECT SUM(s.calls)::BIGINT FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
			WHERE d.datname = current_database() AND LOWER(s.query) NOT LIKE 'begin%' AND LOWER(s.query) NOT LIKE 'commit%'
			AND LOWER(s.query) NOT LIKE 'rollback%'`).Scan(&c.statements)
	})
	if err != nil {
		c.statements = -1
	}
	rows, err := d.Query(ctx, `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
		AND pid <> pg_backend_pid()`)
	pids, err := db.Collect(rows, err, func(r db.Row) (pid int, err error) { err = r.Scan(&pid); return pid, err })
	for _, pid := range pids {
		// A process of another machine does not exist here, or it is another program.
		if line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline"); bytes.HasPrefix(line, []byte("postgres: ")) {
			c.cpu[pid] = cpuOf(pid)
		}
	}
	return c, err
}

// perEmail describes the work between two counts for each of n emails.
func (c *serverCounts) perEmail(before *serverCounts, n int) string {
	each := func(now, before int64) float64 { return float64(now-before) / float64(n) }
	parts := []string{fmt.Sprintf("rows %.2f inserted, %.2f updated, %.2f deleted", each(c.inserted, before.inserted),
		each(c.updated, before.updated), each(c.deleted, before.deleted))}
	if c.statements >= 0 && before.statements >= 0 {
		parts = append(parts, fmt.Sprintf("%.2f statements", each(c.statements, before.statements)))
	}
	parts = append(parts, fmt.Sprintf("log %.2f KB", each(c.log, before.log)/1024),
		fmt.Sprintf("disk %.2f KB", each(c.disk, before.disk)/1024),
		fmt.Sprintf("queue %.2f KB", each(c.queue, before.queue)/1024))
	used, known := time.Duration(0), false
	for pid, cpu := range c.cpu {
		used, known = used+cpu-before.cpu[pid], true // a connection that was opened in between has used no CPU before
	}
	if known {
		parts = append(parts, fmt.Sprintf("server CPU %.3f ms", used.Seconds()*1000/float64(n)))
	}
	return strings.Join(parts, ", ")
}
