package bench

import (
	"context"
	"encoding/base64"
	"net"
	"time"
)

// submission measures SMTP submission in messages per second, first with delivery held, and then end to end with
// signing and delivery. The last measurement submits one 30 MB message.
func (b *measurement) submission(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	port := l.Addr().String()
	l.Close()
	b.say("Postrider %s on %s: messages of %d bytes, %d sessions with a key as the password", b.env.Version,
		b.engine(), b.bytes,
		b.conns)
	t := smtpTraffic{from: "alice@bench.example", to: "bob@inbox.example",
		auth: base64.StdEncoding.EncodeToString([]byte("\x00postrider\x00" + apiKey))}
	n, err := b.start(ctx, "--smtp-submit", port, "--roles", "api,submission")
	if err != nil {
		return err
	}
	cpu, start := n.cpu(), time.Now()
	err = b.smtpLoad(ctx, port, t, b.conns, b.emails, b.bytes)
	took := time.Since(start)
	b.say("handed in, delivery held    %8.0f /s   CPU %.2f ms a message   peak memory %.0f MB",
		float64(b.emails)/took.Seconds(),
		(n.cpu()-cpu).Seconds()*1000/float64(b.emails), n.memoryMB("VmHWM"))
	n.stop()
	if err != nil {
		return err
	}
	if n, err = b.start(ctx, "--smtp-submit", port); err != nil {
		return err
	}
	defer n.stop()
	if err := n.idle(ctx); err != nil {
		return err
	}
	for range b.runs {
		cpu, start := n.cpu(), time.Now()
		if err := b.smtpLoad(ctx, port, t, b.conns, b.emails, b.bytes); err != nil {
			return err
		}
		accepted := time.Since(start)
		if err := n.idle(ctx); err != nil {
			return err
		}
		b.say("end to end                  %8.0f /s   handed in at %.0f/s   CPU %.2f ms a message",
			float64(b.emails)/time.Since(start).Seconds(),
			float64(b.emails)/accepted.Seconds(), (n.cpu()-cpu).Seconds()*1000/float64(b.emails))
	}
	return b.bigMessages(ctx, n, port, t)
}
