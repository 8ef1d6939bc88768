package bench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/render"
)

// enqueue measures how fast emails with the same content are enqueued for many recipients, without a separate node
// process. Nothing is delivered.
func (b *measurement) enqueue(ctx context.Context, c config.Config, recipients int) error {
	c.DataDir, c.BlobURL, c.SecretKey = b.data(), b.blobs(), config.Secret(b.secret)
	n, err := node.Open(ctx, c, slog.New(slog.DiscardHandler), node.Options{Version: b.env.Version})
	if err != nil {
		return err
	}
	defer n.Close()
	m, err := b.mailing(ctx, n)
	if err != nil {
		return err
	}
	self := &measuredNode{pid: os.Getpid()}
	idle, start, cpu := self.memoryMB("VmRSS"), time.Now(), self.cpu()
	var took []time.Duration
	for from := 0; from < recipients; from += emails.MaxEnqueue {
		to := make([]emails.MailingRecipient, min(emails.MaxEnqueue, recipients-from))
		for i := range to {
			to[i] = emails.MailingRecipient{Address: fmt.Sprintf("r%d@d%d.example", from+i, (from+i)%5000),
				Values: render.Values{"contact.first_name": fmt.Sprintf("Reader %d", from+i)}}
		}
		began := time.Now()
		if err := n.DB.Update(ctx, func(tx *db.Tx) error {
			_, err := n.Emails.Enqueue(ctx, tx, m, to)
			return err
		}); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	all := time.Since(start)
	slices.Sort(took)
	b.say("Postrider %s on %s: %d recipients of one content of %d bytes, %d in a transaction", b.env.Version, b.engine(),
		recipients,
		b.bytes, emails.MaxEnqueue)
	b.say("entered                     %8.0f /s   CPU %.3f ms a recipient   a transaction p50 %.0f ms, p99 %.0f ms",
		float64(recipients)/all.Seconds(), (self.cpu()-cpu).Seconds()*1000/float64(recipients),
		took[len(took)/2].Seconds()*1000, took[len(took)*99/100].Seconds()*1000)
	b.say("memory                      %8.0f MB before, %.0f MB at the most", idle, self.peakMB())
	return nil
}

// mailing creates a team with a verified domain and the content of an email, and returns a mailing with that content.
func (b *measurement) mailing(ctx context.Context, n *node.Node) (*emails.Mailing, error) {
	if err := n.Teams.EnsureKey(ctx, "Bench", "bench", apiKey); err != nil {
		return nil, err
	}
	who, err := n.Teams.Authenticate(ctx, apiKey)
	if err != nil {
		return nil, err
	}
	if _, err := n.Domains.AddVerified(ctx, who.TeamID, domains.NewDomain{Name: "bench.example"}); err != nil {
		return nil, err
	}
	html := "<p>Dear {{{contact.first_name|reader}}},</p>\n" + b.html()
	c := content.Content{TeamID: who.TeamID, From: "Bench <a@bench.example>",
		Subject: "News for {{{contact.first_name|you}}}",
		HTML:    &html}
	if err := n.DB.Update(ctx, func(tx *db.Tx) error { return n.Contents.Add(ctx, tx, &c) }); err != nil {
		return nil, err
	}
	return n.Emails.Mailing(ctx, who, c.ID, true)
}
