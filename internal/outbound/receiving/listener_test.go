package receiving_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/mail/smtpserver"
)

// listen serves the fixture on a local port until the test ends.
func (f *fixture) listen(t *testing.T, c smtpserver.Config) string { return serveFor(t, c, f.Service) }

func serveFor(t *testing.T, c smtpserver.Config, h smtpserver.Handler) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := smtpserver.New(c, h, slog.New(slog.DiscardHandler)).Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return l.Addr().String()
}

// Each message that the server accepted with 250 is stored exactly once, whatever happens on other connections.
func TestThroughTheListener(t *testing.T) {
	each(t, func(t *testing.T, f *fixture) {
		addr := f.listen(t, smtpserver.Config{MaxSize: 200_000})
		var wg sync.WaitGroup
		const clients, each = 8, 5
		for i := range clients {
			wg.Go(func() {
				c, err := smtp.Dial(addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				for k := range each {
					body := strings.NewReader(fmt.Sprintf("Subject: %d.%d\r\n\r\n%s\r\n", i, k, strings.Repeat("x\r\n", k*10_000)))
					if err := c.SendMail("jo@sender.example", []string{"a@in.acme.example", "b@other.example"}, body); err != nil {
						t.Error(err)
					}
				}
				if err := c.SendMail("jo@sender.example", []string{"a@elsewhere.example"}, strings.NewReader("x")); err == nil {
					t.Error("relayed")
				}
				c.Reset()
				if err := c.SendMail("jo@sender.example", []string{"a@in.acme.example"},
					strings.NewReader(strings.Repeat("x\r\n", 100_000))); err == nil {
					t.Error("larger than allowed, and taken")
				}
				if err := c.Quit(); err != nil {
					t.Log(err) // the server may have closed the connection after an oversized message
				}
			})
		}
		wg.Wait()
		for _, team := range []string{f.Acme.TeamID, f.Other.TeamID} {
			subjects := map[string]bool{}
			for _, e := range f.list(t, team) {
				subjects[e.Subject] = true
			}
			if all := f.list(t, team); len(all) != clients*each || len(subjects) != clients*each {
				t.Errorf("%d emails of %d subjects, want %d", len(all), len(subjects), clients*each)
			}
		}
		if n := f.blobCount(t); n != 2*clients { // blobs of the messages with k = 3 and k = 4
			t.Errorf("%d blobs, want those of the messages that are large and were taken", n)
		}
	})
}
