package jobs_test

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// BenchmarkMeasureBacklog measures a queue of 100,000 jobs in 1,000 lanes, or of POSTRIDER_BENCH_JOBS jobs.
func BenchmarkMeasureBacklog(b *testing.B) {
	count, err := strconv.Atoi(os.Getenv("POSTRIDER_BENCH_JOBS"))
	if err != nil {
		count = 100_000
	}
	for _, d := range []*db.DB{dbtest.SQLite(b), dbtest.Postgres(b)} {
		fillQueue(b, d, count)
		b.Run(fmt.Sprint(d.Engine(), "/", count), func(b *testing.B) {
			for b.Loop() {
				single, bulk, err := jobs.MeasureBacklog(b.Context(), d.Reader, "delivery", "|bulk", d.Now())
				if err != nil || single.Due+bulk.Due != int64(count) {
					b.Fatalf("%+v, %+v, %v", single, bulk, err)
				}
			}
		})
	}
}

// fillQueue inserts due jobs, half of them in bulk lanes.
func fillQueue(b *testing.B, d *db.DB, count int) {
	b.Helper()
	q := jobs.NewQueue(d)
	for n := 0; n < count; {
		if err := d.Update(b.Context(), func(tx *db.Tx) error {
			for range min(1000, count-n) {
				lane := fmt.Sprint("d", n%500, ".example|team")
				if n%2 == 0 {
					lane += "|bulk"
				}
				q.Insert(b.Context(), tx, jobs.New{Kind: "delivery", Lane: lane, RunAt: d.Now().Add(-time.Minute)})
				n++
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
}
