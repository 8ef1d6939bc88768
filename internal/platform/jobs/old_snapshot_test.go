package jobs_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// While another session keeps a snapshot open, a claim reads few pages, regardless of how many jobs have ended since.
func TestClaimsBesideAnOldSnapshot(t *testing.T) {
	d, trace := dbtest.PostgresTraced(t)
	b := newBench(t, d)
	b.r.Handle(jobs.Kind{Name: "k", Workers: 64, Handle: func(ctx context.Context, j jobs.Job) error {
		defer b.saw(j)
		return d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
			b.q.Finish(ctx, tx, j)
			return nil
		})
	}})
	b.start(t)
	defer keepSnapshot(t, d)()
	const jobsOfAClaim = 6 // as many as a busy node claims at a time
	total := 0
	drain := func(n, step int) {
		t.Helper()
		for range n / step {
			all := make([]jobs.New, step)
			for i := range all {
				all[i] = jobs.New{Kind: "k", Lane: "l"}
			}
			b.insert(t, all...)
		}
		total += n
		b.await(t, total)
		for left(t, d) > 0 { // wait until the last jobs' ends are recorded
		}
	}
	pages := func() int {
		t.Helper()
		n := make(chan int, 1)
		trace.Before("SKIP LOCKED", func() {
			all := trace.Take()
			n <- pagesOf(t, d, all[len(all)-1])
		})
		drain(jobsOfAClaim, jobsOfAClaim)
		return <-n
	}
	const before = 2000
	drain(before, 100)
	// The number of pages that a claim reads varies. So the largest number before is compared with the smallest one
	// after.
	first := max(pages(), pages(), pages())
	drain(3*before, 100)
	second := min(pages(), pages(), pages())
	t.Logf("a claim reads %d pages, then %d", first, second)
	if first > 150 || second > 150 || second > first+20 {
		t.Errorf("a claim reads %d pages after %d jobs and %d pages after %d", first, before, second, 4*before)
	}
}

// keepSnapshot opens a transaction that keeps its snapshot, and returns a function that ends the transaction.
func keepSnapshot(t *testing.T, d *db.DB) (end func()) {
	t.Helper()
	open, enough, gone := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		gone <- d.Update(context.WithoutCancel(t.Context()), func(tx *db.Tx) error {
			ctx := context.WithoutCancel(t.Context())
			tx.Queue(ctx, `SET TRANSACTION ISOLATION LEVEL REPEATABLE READ`)
			tx.Queue(ctx, `SET LOCAL idle_in_transaction_session_timeout = 0`)
			_, err := tx.Exec(ctx, `SELECT COUNT(*) FROM jobs`)
			close(open)
			<-enough
			return err
		})
	}()
	<-open
	return func() {
		close(enough)
		if err := <-gone; err != nil {
			t.Error(err)
		}
	}
}

var sharedBuffers = regexp.MustCompile(`Buffers: shared(?: hit=(\d+))?(?: read=(\d+))?`)

// pagesOf runs a statement in a transaction that is rolled back, and returns how many pages the statement used.
func pagesOf(t *testing.T, d *db.DB, s db.Statement) (n int) {
	undo := errors.New("undo")
	err := d.Update(t.Context(), func(tx *db.Tx) error {
		rows, err := tx.Query(t.Context(), "EXPLAIN (ANALYZE, BUFFERS) "+s.SQL, s.Args...)
		lines, err := db.Collect(rows, err, func(r db.Row) (line string, err error) { return line, r.Scan(&line) })
		if err != nil {
			return err
		}
		m := sharedBuffers.FindStringSubmatch(strings.Join(lines, "\n"))
		for _, pages := range m[1:] {
			k, _ := strconv.Atoi(pages)
			n += k
		}
		return undo
	})
	if !errors.Is(err, undo) {
		t.Error(err)
	}
	return n
}
