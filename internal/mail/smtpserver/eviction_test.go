package smtpserver_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// dialFrom connects from the given loopback address.
func dialFrom(t testing.TB, from, addr string) *client {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return &client{t, nc, bufio.NewReader(nc)}
}

// handIn sends a message and expects a reply that begins with want.
func (c *client) handIn(want string) {
	c.t.Helper()
	c.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "250", "250", "250", "354")
	c.ask("x\r\n.\r\n", want)
}

// TestSilentConnectionsGiveWay occupies all slots with silent connections. A new client still gets a slot, and the
// network with the most connections loses one.
func TestSilentConnectionsGiveWay(t *testing.T) {
	h := &handler{}
	addr := serve(t, smtpserver.Config{MaxConnections: 20, MaxPerAddr: 5}, h)
	silent := map[string][]*client{}
	for _, from := range []string{"127.0.1.1", "127.0.1.2", "127.0.1.3", "127.0.2.1"} {
		for range 5 {
			c := dialFrom(t, from, addr)
			c.ask("", "220")
			silent[from[:7]] = append(silent[from[:7]], c)
		}
	}
	for i := range 8 {
		c := dialFrom(t, fmt.Sprintf("127.0.3.%d", i+1), addr)
		c.ask("", "220")
		c.handIn("250 2.0.0 Taken")
	}
	for i, c := range silent["127.0.1"] {
		if i < 8 { // the connections that have waited longest are closed first
			c.ask("", "421 4.3.2")
			c.closed()
			continue
		}
		c.ask("NOOP\r\n", "250")
	}
	for _, c := range silent["127.0.2"] {
		c.ask("NOOP\r\n", "250")
	}
	if n := len(h.messages()); n != 8 {
		t.Errorf("%d messages, want 8", n)
	}
}

// New connections from one network replace each other, but never replace a connection in the middle of an SMTP session.
func TestNewConnectionsOfOneNetworkReplaceEachOther(t *testing.T) {
	addr := serve(t, smtpserver.Config{MaxConnections: 5}, &handler{})
	honest := dialFrom(t, "127.0.9.1", addr)
	honest.ask("HELO a.test\r\n", "220", "250")
	for i := range 40 {
		dialFrom(t, fmt.Sprintf("127.0.1.%d", i+1), addr).ask("", "220")
	}
	honest.ask("MAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "250", "250", "354")
	honest.ask("x\r\n.\r\n", "250 2.0.0 Taken")
}

// The server refuses a client that exceeds the limit for its address, and no other client loses its slot.
func TestLimitOfAnAddressCountsFirst(t *testing.T) {
	addr := serve(t, smtpserver.Config{MaxConnections: 3, MaxPerAddr: 2}, &handler{})
	a, b, c := dialFrom(t, "127.0.1.1", addr), dialFrom(t, "127.0.1.1", addr), dialFrom(t, "127.0.2.1", addr)
	for _, c := range []*client{a, b, c} {
		c.ask("", "220")
	}
	for range 5 {
		d := dialFrom(t, "127.0.1.1", addr)
		d.ask("", "421 4.7.0")
		d.closed()
	}
	for _, c := range []*client{a, b, c} {
		c.ask("NOOP\r\n", "250")
	}
}

// Clients that have sent a message, or are sending one, keep their slots longer than clients that have done nothing.
func TestActiveClientsKeepTheirSlots(t *testing.T) {
	h := &handler{}
	addr := serve(t, smtpserver.Config{MaxConnections: 3}, h)
	proven, fresh, sending := dial(t, addr), dial(t, addr), dial(t, addr)
	proven.ask("", "220")
	proven.handIn("250 2.0.0 Taken as 1")
	fresh.ask("", "220")
	sending.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "220", "250", "250", "250", "354")
	io.WriteString(sending.nc, "x\r\n")
	last := dial(t, addr)
	last.ask("", "220")
	fresh.ask("", "421 4.3.2")
	last.handIn("250 2.0.0 Taken as 2")
	late := dial(t, addr)
	late.ask("", "421 4.3.2")
	late.closed()
	sending.ask(".\r\n", "250 2.0.0 Taken as 3")
	proven.ask("NOOP\r\n", "250")
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.taken[2] != "x\r\n" {
		t.Errorf("taken: %q", h.taken)
	}
}

// Connections that never finish their TLS handshake lose their slots too.
func TestHandshakesGiveWay(t *testing.T) {
	ca := smtptest.NewCA(t)
	server := &tls.Config{Certificates: []tls.Certificate{ca.Certificate("127.0.0.1")}}
	trust := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
	for _, implicit := range []bool{true, false} {
		addr := serve(t, smtpserver.Config{MaxConnections: 1, TLS: server, Implicit: implicit}, &handler{})
		silent := dial(t, addr)
		if !implicit {
			silent.ask("EHLO a.test\r\nSTARTTLS\r\n", "220", "250", "220")
		}
		await(t, "the place of who ends no handshake", func() bool {
			c := dial(t, addr)
			if implicit {
				nc := tls.Client(c.nc, trust)
				c.nc, c.in = nc, bufio.NewReader(nc)
			}
			line, err := c.in.ReadString('\n')
			return err == nil && strings.HasPrefix(line, "220")
		})
		if text, err := io.ReadAll(silent.in); err != nil || len(text) > 0 {
			t.Errorf("the silent client heard %q, %v", text, err)
		}
	}
}

// pipes is a listener for in-memory connections, which work with the fake clock in synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p *pipes) dial(t *testing.T) *client {
	here, there := net.Pipe()
	p.conns <- there
	t.Cleanup(func() { here.Close() })
	return &client{t, here, bufio.NewReader(here)}
}

// bubble serves in-memory connections in a synctest bubble until f returns.
func bubble(t *testing.T, c smtpserver.Config, f func(t *testing.T, h *handler, p *pipes)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		h := &handler{}
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() { smtpserver.New(c, h, slog.New(slog.DiscardHandler)).Serve(ctx, p) })
		f(t, h, p)
		cancel()
		wg.Wait()
	})
}

// While few slots are free, the timeout is shorter for clients that have not sent a message.
func TestPatience(t *testing.T) {
	bubble(t, smtpserver.Config{MaxConnections: 4}, func(t *testing.T, _ *handler, p *pipes) {
		start := time.Now()
		var ended [4]time.Duration
		var wg sync.WaitGroup
		for i := range ended {
			c := p.dial(t)
			c.ask("", "220")
			wg.Go(func() {
				c.ask("", "421 4.4.2")
				c.closed()
				ended[i] = time.Since(start)
			})
		}
		wg.Wait()
		if want := [4]time.Duration{5 * time.Minute, 5 * time.Minute, 20 * time.Second, 20 * time.Second}; ended != want {
			t.Errorf("silent clients were given %v, want %v", ended, want)
		}
	})
}

// A client that sends a message at one byte per second keeps its slot while other slots are free, up to a time limit.
// If no other slot is free, such a slow client loses its slot.
func TestDrippingMessage(t *testing.T) {
	for _, full := range []bool{false, true} {
		bubble(t, smtpserver.Config{MaxConnections: 2}, func(t *testing.T, _ *handler, p *pipes) {
			c := p.dial(t)
			c.ask("", "220")
			c.ask("HELO a.test\r\n", "250")
			c.ask("MAIL FROM:<a@a.test>\r\n", "250")
			c.ask("RCPT TO:<b@b.test>\r\n", "250")
			c.ask("DATA\r\n", "354")
			start := time.Now()
			var dripping sync.WaitGroup
			defer dripping.Wait()
			dripping.Go(func() {
				for { // runs until the server closes the connection
					if _, err := io.WriteString(c.nc, "x"); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			})
			time.Sleep(30*time.Second + time.Millisecond)
			if full {
				for range 2 {
					p.dial(t).ask("", "220")
				}
			}
			want, after := "421 4.4.2", 10*time.Minute
			if full {
				want, after = "421 4.3.2", 30*time.Second+time.Millisecond
			}
			c.ask("", want)
			if took := time.Since(start); took != after {
				t.Errorf("cut off after %v, want %v", took, after)
			}
			c.nc.Close()
		})
	}
}

// A client whose message arrives too slowly loses its slot, and the server accepts no part of the message. A client
// keeps its slot while the handler is working on its message.
func TestSlowMessagesGiveWay(t *testing.T) {
	for _, data := range [][2]string{{"DATA\r\n", "354"}, {"BDAT 3\r\nx\r\n", ""}} {
		bubble(t, smtpserver.Config{MaxConnections: 1}, func(t *testing.T, h *handler, p *pipes) {
			h.hold = make(chan struct{})
			slow := p.dial(t)
			slow.ask("", "220")
			slow.ask("HELO a.test\r\n", "250")
			slow.ask("MAIL FROM:<a@a.test>\r\n", "250")
			slow.ask("RCPT TO:<b@b.test>\r\n", "250")
			go io.WriteString(slow.nc, data[0])
			if data[1] != "" {
				slow.ask("", data[1])
			}
			time.Sleep(time.Minute)
			p.dial(t).ask("", "421 4.3.2") // the connection cannot be evicted while the handler is working
			close(h.hold)
			synctest.Wait()
			heard := make(chan string)
			go func() {
				rest, _ := io.ReadAll(slow.in)
				heard <- string(rest)
			}()
			synctest.Wait()
			next := p.dial(t)
			next.ask("", "220")
			if got := <-heard; !strings.Contains("\n"+got, "\n421 4.3.2 ") || strings.Contains(got, "Taken") {
				t.Errorf("the slow client heard %q", got)
			}
			next.ask("QUIT\r\n", "221")
			if got := h.messages(); len(got) != 0 {
				t.Errorf("taken: %q", got)
			}
		})
	}
}
