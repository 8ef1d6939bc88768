package links_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/metrics"
)

// BenchmarkHits sends 2,000 hits a second for five seconds to a server on loopback, over persistent connections. The
// hits alternate between opens and clicks, and are spread over a thousand emails. In one variant, the node also accepts
// 300 emails a second and records them as delivered. The benchmark reports the median and 99th percentile response
// times, measured from the time at which each hit was due. The benchmark also reports how long it takes after the last
// response until all hits are on disk.
func BenchmarkHits(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		for _, beside := range []int{0, 300} {
			b.Run(fmt.Sprintf("%s/%d_emails", name, beside), func(b *testing.B) {
				benchmarkHits(b, testnode.New(b, open(b), testnode.Options{}), beside)
			})
		}
	}
}

// sendAtRate sends emails at the given rate until ctx ends, immediately records each email as delivered, and returns
// the number of sent emails.
func sendAtRate(ctx context.Context, n *testnode.Node, rate int) (sent int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	var working sync.WaitGroup
	defer working.Wait()
	for {
		select {
		case <-ctx.Done():
			return sent
		case <-tick.C:
		}
		address := fmt.Sprintf("beside%d@two.example", sent)
		sent++
		working.Go(func() {
			emailID := n.Send(testnode.Hello(address))
			for _, kind := range []events.Type{events.EmailSent, events.EmailDelivered} {
				n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: kind, Recipient: address})
			}
		})
	}
}

func benchmarkHits(b *testing.B, n *testnode.Node, beside int) {
	const emails, rate, seconds, clients = 1000, 2000, 5, 64
	n.Recorder.Listen(metrics.New(n.DB))
	tr := newTracker(n)
	var paths []string
	for i := range emails {
		address := fmt.Sprintf("to%d@one.example", i)
		emailID := n.Send(testnode.Hello(address))
		n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered, Recipient: address})
		paths = append(paths, open(n, emailID), click(n, emailID, shopLink))
	}
	server := httptest.NewServer(tr)
	defer server.Close()
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tr.hits.Run(ctx) }()

	loading, stop := context.WithCancel(context.Background())
	defer stop()
	accepted := make(chan int, 1)
	if beside > 0 {
		go func() { accepted <- sendAtRate(loading, n, beside) }()
	}
	sent := 0
	var took []time.Duration
	for b.Loop() {
		const total = rate * seconds
		answers := make([]time.Duration, total)
		var next atomic.Int64
		var working sync.WaitGroup
		began := time.Now()
		for range clients {
			working.Go(func() {
				for {
					i := int(next.Add(1)) - 1
					if i >= total {
						return
					}
					due := began.Add(time.Duration(i) * time.Second / rate)
					time.Sleep(time.Until(due))
					r, err := http.NewRequest("GET", server.URL+paths[i%len(paths)], nil)
					if err != nil {
						b.Error(err)
						return
					}
					r.Header.Set("User-Agent", browser)
					r.Host = linksHost
					answer, err := client.Do(r)
					if err != nil {
						b.Error(err)
						return
					}
					_, _ = io.Copy(io.Discard, answer.Body)
					answer.Body.Close()
					answers[i] = time.Since(due)
				}
			})
		}
		working.Wait()
		took = append(took, answers...)
		sent += total
	}
	last := time.Now()
	cancel()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(time.Since(last).Seconds()*1000, "ms-to-disk")
	if beside > 0 {
		stop()
		b.ReportMetric(float64(<-accepted)/b.Elapsed().Seconds(), "emails/s")
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)/2].Seconds()*1000, "ms-median")
	b.ReportMetric(took[len(took)*99/100].Seconds()*1000, "ms-p99")
	var stored int
	err := n.DB.QueryRow(context.Background(), `SELECT COUNT(*) FROM email_events WHERE type IN (6, 7)`).
		Scan(&stored)
	if err != nil || stored != sent || tr.hits.Dropped() != 0 {
		b.Errorf("%d of %d hits are stored, %d were dropped, %v", stored, sent, tr.hits.Dropped(), err)
	}
}
