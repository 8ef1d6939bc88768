package bench

import (
	"os"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// perEmail divides what happened between two counts by the number of emails. It leaves out what the server does not
// tell, and counts the whole CPU time of a connection that was opened in between.
func TestPerEmail(t *testing.T) {
	t.Parallel()
	before := serverCounts{inserted: 100, updated: 10, deleted: 5, statements: 1000, log: 1 << 20, disk: 4 << 20,
		queue: 1 << 20,
		cpu:   map[int]time.Duration{1: time.Second, 2: time.Hour}}
	after := serverCounts{inserted: 5100, updated: 1510, deleted: 1005, statements: 8500, log: 4 << 20, disk: 6 << 20,
		queue: 1 << 20,
		cpu:   map[int]time.Duration{1: 1200 * time.Millisecond, 3: 200 * time.Millisecond}}
	want := "rows 5.00 inserted, 1.50 updated, 1.00 deleted, 7.50 statements, log 3.07 KB, disk 2.05 KB, queue 0.00 KB, " +
		"server CPU 0.400 ms"
	if got := after.perEmail(&before, 1000); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	before.statements, after.cpu = -1, nil
	want = "rows 5.00 inserted, 1.50 updated, 1.00 deleted, log 3.07 KB, disk 2.05 KB, queue 0.00 KB"
	if got := after.perEmail(&before, 1000); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// cpuOf returns the CPU time of a process, and 0 for a process that does not exist.
func TestCPUOf(t *testing.T) {
	t.Parallel()
	for cpuOf(os.Getpid()) == 0 { // ends after 10 ms of CPU time
	}
	if got := cpuOf(1 << 30); got != 0 {
		t.Errorf("a process that does not exist has used %v", got)
	}
}

// readServerCounts counts the bytes of the log and of the tables.
func TestReadServerCounts(t *testing.T) {
	t.Parallel()
	d := dbtest.Postgres(t)
	before, err := readServerCounts(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	err = d.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO email_counts_until (team_id, until, version)
			SELECT gen_random_uuid(), 0, 1 FROM generate_series(1, 1000) n`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	after, err := readServerCounts(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if after.disk-before.disk < 50_000 || after.log-before.log < 50_000 {
		t.Errorf("1,000 rows: %d bytes of tables, %d of log", after.disk-before.disk, after.log-before.log)
	}
}
