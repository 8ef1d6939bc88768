package delivery

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// BenchmarkDeliver delivers claimed jobs to a sink, one email of 10 KB each, on SQLite. The metric us-cpu/op is the
// processor time of the whole process, including the sink and the job runner.
func BenchmarkDeliver(b *testing.B) {
	b.Run("rsa+ed25519", func(b *testing.B) { benchmarkDeliver(b, true) })
	b.Run("ed25519 twice", func(b *testing.B) { benchmarkDeliver(b, false) })
}

func benchmarkDeliver(b *testing.B, rsa bool) {
	sink, err := smtpsink.Start("127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	n := one(sink.Addr())
	cfg := n.config(1)
	cfg.LaneConnections, cfg.Workers, cfg.Signers = 10, 16, 2
	f := newFixture(b, dbtest.SQLite(b), cfg, n.dns)
	f.quiet = true
	if !rsa {
		err := f.DB.Update(b.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(b.Context(), `UPDATE domains SET rsa_key = ed25519_key`)
			return err
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	html, text := "<p>"+strings.Repeat("Hello, this is a line of text for you. ", 180)+"</p>",
		strings.Repeat("Hello, this is a line.\n", 130)
	batch := make([]emails.Send, 0, emails.MaxBatch)
	for i := 0; i < b.N; i += len(batch) {
		batch = batch[:0]
		for k := range min(emails.MaxBatch, b.N-i) {
			batch = append(batch, emails.Send{From: "hello@" + from, To: []string{address(i + k)}, Subject: fmt.Sprint("Number ",
				i+k), HTML: &html, Text: &text})
		}
		if _, err := f.Emails.SendBatch(b.Context(), f.Acme, batch, false, emails.Idempotency{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	b.ReportAllocs()
	before := cpu(b)
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- f.runner.Run(ctx) }()
	deadline := time.After(10 * time.Minute)
	for f.count(events.EmailDelivered) < b.N {
		f.mu.Lock()
		news := f.news
		f.mu.Unlock()
		if f.count(events.EmailDelivered) >= b.N {
			break
		}
		select {
		case <-news:
		case <-deadline:
			b.Fatalf("%d of %d after ten minutes", f.count(events.EmailDelivered), b.N)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(b.N), "us-cpu/op")
	cancel()
	if err := <-done; err != nil {
		b.Error(err)
	}
	f.service.pool.prune(time.Now().Add(time.Hour))
}

// cpu returns the processor time used by this process.
func cpu(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
