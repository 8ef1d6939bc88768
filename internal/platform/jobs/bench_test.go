package jobs

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// BenchmarkDrain claims and finishes 200,000 waiting jobs, all in one lane or each in a separate lane.
func BenchmarkDrain(b *testing.B) {
	const n = 200_000
	for _, lanes := range []int{1, n} {
		for engine, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
			b.Run(fmt.Sprintf("%s/lanes=%d", engine, lanes), func(b *testing.B) {
				for b.Loop() {
					d := open(b)
					q := NewQueue(d)
					for from := 0; from < n; from += 1000 {
						if err := d.Update(b.Context(), func(tx *db.Tx) error {
							for i := range 1000 {
								q.Insert(b.Context(), tx, New{Kind: "k", Lane: fmt.Sprintf("%06d", (from+i)%lanes)})
							}
							return nil
						}); err != nil {
							b.Fatal(err)
						}
					}
					r := NewRunner(d, q, slog.New(slog.DiscardHandler), time.Second)
					ctx, cancel := context.WithCancel(b.Context())
					var done atomic.Int64
					r.Handle(Kind{Name: "k", Workers: 256, Handle: func(ctx context.Context, j Job) error {
						err := d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
							q.Finish(ctx, tx, j)
							return nil
						})
						if err == nil && done.Add(1) == n {
							cancel()
						}
						return err
					}})
					began := time.Now()
					if err := r.Run(ctx); err != nil {
						b.Fatal(err)
					}
					b.ReportMetric(n/time.Since(began).Seconds(), "jobs/s")
				}
			})
		}
	}
}

// BenchmarkStart starts a node with many waiting jobs in 20,000 lanes: one million jobs, or as many as the environment
// variable POSTRIDER_WAITING_JOBS says. It reports the time until the first job runs and until 20,000 jobs have ended,
// the peak memory meanwhile, and how long other work takes beside so many jobs: mending times after a step of the
// clock, and making the 500 jobs of a dead node due.
func BenchmarkStart(b *testing.B) {
	const lanes, ends = 20_000, 20_000
	n, err := strconv.Atoi(cmp.Or(os.Getenv("POSTRIDER_WAITING_JOBS"), "1000000"))
	if err != nil {
		b.Fatal(err)
	}
	for engine, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(engine, func(b *testing.B) {
			d := open(b)
			fillLanes(b, d, n, lanes)
			for b.Loop() {
				resetPeak(b)
				r := NewRunner(d, NewQueue(d), slog.New(slog.DiscardHandler), time.Second)
				ctx, cancel := context.WithCancel(b.Context())
				var begun, ended atomic.Int64
				start := time.Now()
				r.Handle(Kind{Name: "k", Workers: 256, Handle: func(ctx context.Context, j Job) error {
					if begun.Add(1) == 1 {
						b.ReportMetric(time.Since(start).Seconds(), "s/first")
					}
					err := d.UpdateTogether(ctx, db.Recording, func(tx *db.Tx) error {
						r.q.Finish(ctx, tx, j)
						return nil
					})
					if err == nil && ended.Add(1) == ends {
						b.ReportMetric(time.Since(start).Seconds(), "s/20000")
						cancel()
					}
					return err
				}})
				if err := r.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(peakMB(b), "peak-MB")
				start = time.Now()
				if _, err := r.restartWaits(b.Context()); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(time.Since(start).Seconds(), "s/mend")
				exec := func(text string, args ...any) {
					if err := d.Update(b.Context(), func(tx *db.Tx) error {
						_, err := tx.Exec(b.Context(), text, args...)
						return err
					}); err != nil {
						b.Fatal(err)
					}
				}
				dead := dbtest.ID("dead")
				exec(`INSERT INTO nodes (id, beat, started_at) VALUES ($1, 5, 0)`, db.ID(dead))
				exec(`UPDATE jobs SET holder = $2, run_at = $1 WHERE id IN (SELECT id FROM jobs ORDER BY id DESC LIMIT 500)`,
					int64(inHand), db.ID(dead))
				start = time.Now()
				r.declareDead(b.Context(), dead, 5)
				b.ReportMetric(time.Since(start).Seconds(), "s/release")
			}
		})
	}
}

// fillLanes inserts waiting jobs in many lanes, one lane after the other.
func fillLanes(b *testing.B, d *db.DB, n, lanes int) {
	const step = 20_000
	now := d.Now().Add(-slack).UnixMicro()
	for from := 0; from < n; from += step {
		var ids, teams []db.ID
		var lane, payloads []string
		var runAt, setAt []int64
		for i := from; i < min(from+step, n); i++ {
			team := dbtest.ID(fmt.Sprint("team ", i%lanes))
			ids, teams = append(ids, db.ID(fmt.Sprintf("01938f5e-0000-7000-8000-%012d", i))), append(teams, db.ID(team))
			lane, payloads = append(lane, "destination.example "+team), append(payloads, string(ids[len(ids)-1]))
			runAt, setAt = append(runAt, now-slack.Microseconds()+int64(i)), append(setAt, now+int64(i))
		}
		if err := d.Update(b.Context(), func(tx *db.Tx) error {
			_, err := tx.InsertRows(b.Context(), `jobs (kind, dedupe, last_error, attempt, parked, id, lane, team_id, payload,
				run_at, created_at, set_at)`, "", "k", "", "", int64(0), false, ids, lane, teams, payloads, runAt, setAt, setAt)
			return err
		}); err != nil {
			b.Fatal(err)
		}
	}
}

// resetPeak makes the kernel measure the peak memory of this process anew.
func resetPeak(b *testing.B) {
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil {
		b.Fatal(err)
	}
}

// peakMB returns the peak memory of this process.
func peakMB(b *testing.B) float64 {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	_, rest, _ := bytes.Cut(text, []byte("VmHWM:"))
	kb, err := strconv.Atoi(strings.Fields(string(rest[:min(len(rest), 40)]))[0])
	if err != nil {
		b.Fatal(err)
	}
	return float64(kb) / 1024
}
