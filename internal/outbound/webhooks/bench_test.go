package webhooks_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

func eachEngine(b *testing.B, f func(b *testing.B, d *db.DB)) {
	b.Run("sqlite", func(b *testing.B) { f(b, dbtest.SQLite(b)) })
	b.Run("postgres", func(b *testing.B) { f(b, dbtest.Postgres(b)) })
}

// record records n suppressions, several per transaction, for numbered addresses.
func (f *fixture) record(b *testing.B, team string, from, n int) {
	b.Helper()
	f.Node.Update(func(tx *db.Tx) error {
		var all []events.Event
		for i := range n {
			all = append(all, events.Event{TeamID: team, Type: events.SuppressionAdded, Data: suppressions.Suppression{
				Address: fmt.Sprintf("user%d@example.net", from+i), CreatedAt: tx.Now()}})
		}
		return f.Recorder.Record(b.Context(), tx, all...)
	})
}

// BenchmarkDrain queues 20,000 webhooks for one endpoint and measures how fast they are delivered. The receiver of
// BenchmarkDrain runs in the same process.
func BenchmarkDrain(b *testing.B) {
	const total = 20_000
	eachEngine(b, func(b *testing.B, d *db.DB) {
		var got atomic.Int64
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			got.Add(1)
		}))
		defer s.Close()
		f := newFixture(b, d, config(), loopbackOnly)
		f.endpoint(b, s.URL)
		for b.Loop() {
			b.StopTimer()
			got.Store(0)
			for i := range total / 500 {
				f.record(b, f.Acme.TeamID, i*500, 500)
			}
			b.StartTimer()
			start := time.Now()
			stop := f.run()
			testnode.Until(b, "all are delivered and recorded", func() bool {
				if got.Load() < total {
					return false
				}
				var n int
				must(b, d.QueryRow(b.Context(), `SELECT COUNT(*) FROM jobs WHERE kind = 'webhook'`).Scan(&n))
				return n == 0
			})
			b.ReportMetric(total/time.Since(start).Seconds(), "webhooks/s")
			stop()
		}
	})
}

// BenchmarkThousandEndpoints records 500 events a second for 1,000 teams with one endpoint each. In
// BenchmarkThousandEndpoints, 5 of the endpoints never answer, and 5 others take 5 seconds to answer.
// BenchmarkThousandEndpoints reports the delay between an event and the resulting request, for the fast endpoints.
func BenchmarkThousandEndpoints(b *testing.B) {
	const teams, rate, seconds = 1000, 500, 10
	eachEngine(b, func(b *testing.B, d *db.DB) {
		var mu sync.Mutex
		var sent [rate * seconds]time.Time
		var took []time.Duration
		done := make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			now := time.Now()
			switch r.URL.Path {
			case "/dead":
				<-done
				return
			case "/slow":
				select {
				case <-time.After(5 * time.Second):
				case <-done:
				}
				return
			}
			_, after, _ := strings.Cut(string(body), `"user`)
			number, _, _ := strings.Cut(after, "@")
			if i, err := strconv.Atoi(number); err == nil {
				mu.Lock()
				took = append(took, now.Sub(sent[i]))
				mu.Unlock()
			}
		}))
		defer s.Close()
		f := newFixture(b, d, config(), loopbackOnly)
		for i := range teams {
			path := "/good"
			switch {
			case i%200 == 0:
				path = "/dead"
			case i%200 == 100:
				path = "/slow"
			}
			_, err := f.Create(b.Context(), fmt.Sprintf("team%d", i), s.URL+path, []string{string(events.SuppressionAdded)})
			must(b, err)
		}
		stop := f.run()
		for b.Loop() {
			took = took[:0]
			tick := time.NewTicker(time.Second / rate)
			good := 0
			var writers sync.WaitGroup
			for i := range rate * seconds {
				<-tick.C
				mu.Lock()
				sent[i] = time.Now()
				mu.Unlock()
				team := i % teams
				if team%100 != 0 {
					good++
				}
				writers.Go(func() { f.record(b, fmt.Sprintf("team%d", team), i, 1) })
			}
			tick.Stop()
			writers.Wait()
			testnode.Until(b, "all good endpoints are told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(took) >= good
			})
			slices.Sort(took)
			ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
			b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
			b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
			b.ReportMetric(ms(took[len(took)-1]), "max-ms")
		}
		close(done)
		stop()
	})
}
