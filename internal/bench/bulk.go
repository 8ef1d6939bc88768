package bench

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// bulkBatches is how many batches of 100 bulk emails the benchmark enqueues.
const bulkBatches = 1000

// bulk reports the latencies of a team's single emails, first alone and then while the team sends bulk mail to the same
// destination.
func (b *measurement) bulk(ctx context.Context) error {
	h, stop, err := b.beside(ctx)
	defer stop()
	if err != nil {
		return err
	}
	b.say("Postrider %s on %s: a team sends %d emails a second, beside bulk mail of its own", b.env.Version, b.engine(),
		goodRate)
	return h.measure(ctx, []phase{
		{"alone", nil},
		{fmt.Sprintf("beside %d bulk emails", bulkBatches*100), h.mailBulk},
	})
}

// mailBulk sends bulk mail faster than the node can deliver it.
func (h *hostileRun) mailBulk(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for b := range bulkBatches {
		g.Go(func() error {
			batch := make([]map[string]any, 100)
			for i := range batch {
				batch[i] = map[string]any{"from": "a@bench.example", "to": fmt.Sprintf("b%d-%d@good.example", b, i),
					"subject": "News", "html": h.html(), "headers": map[string]string{"Precedence": "bulk"}}
			}
			return h.post(ctx, h.good, "/emails/batch", batch)
		})
	}
	return g.Wait()
}
