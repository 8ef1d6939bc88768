package smtpserver_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	netsmtp "net/smtp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// client is a client connection with helpers to send and receive lines.
type client struct {
	t  testing.TB
	nc net.Conn
	in *bufio.Reader
}

func dial(t testing.TB, addr string) *client {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(patience))
	return &client{t, nc, bufio.NewReader(nc)}
}

// hear returns the last line of the next reply.
func (c *client) hear() string {
	c.t.Helper()
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			c.t.Fatalf("heard %q, %v", line, err)
		}
		if len(line) < 4 || line[3] != '-' {
			return strings.TrimRight(line, "\r\n")
		}
	}
}

// ask sends the text and expects one reply for each string in want. Each reply must begin with its string.
func (c *client) ask(text string, want ...string) {
	c.t.Helper()
	if text != "" { // a write to a pipe blocks until there is a reader, even if text is empty
		io.WriteString(c.nc, text)
	}
	for _, w := range want {
		if got := c.hear(); !strings.HasPrefix(got, w) {
			c.t.Fatalf("after %q heard %q, want %s", text, got, w)
		}
	}
}

func (c *client) closed() {
	c.t.Helper()
	if text, err := c.in.ReadString('\n'); !errors.Is(err, io.EOF) {
		c.t.Fatalf("the connection goes on: %q, %v", text, err)
	}
}

// TestSmuggling sends byte sequences that some mail servers treat as the end of a message. For each sequence, the
// server must accept at most one message.
func TestSmuggling(t *testing.T) {
	ends := []string{"\n.\n", "\n.\r\n", "\r\n.\n", "\r.\r", "\r\n.\r", "\r.\r\n", "\r.\n", "\n.\r", "\r\n\x00.\r\n",
		"\r\n.\x00\r\n",
		"\r\n.\r\r\n", "\r\r\n.\r\n", "\n\n.\n\n", "\r\n\r.\r\n", "\r\n.\r\x00\n", "\x85.\x85", "\r\n..\r\n"}
	for _, chunked := range []bool{false, true} {
		for _, end := range ends {
			h := &handler{}
			addr, stop := start(t, smtpserver.Config{}, h)
			c := dial(t, addr)
			text := "Subject: one\r\n\r\nfirst" + end +
				"MAIL FROM:<evil@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\nSubject: two\r\n\r\nsecond\r\n"
			c.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\n", "220", "250", "250", "250")
			if chunked {
				io.WriteString(c.nc, fmt.Sprintf("BDAT %d LAST\r\n%sQUIT\r\n", len(text), text))
			} else {
				io.WriteString(c.nc, "DATA\r\n"+text+".\r\nQUIT\r\n")
			}
			io.ReadAll(c.in)
			stop()
			got := h.messages()
			if len(got) > 1 {
				t.Errorf("%q (chunked %v) smuggled a second message: %q", end, chunked, got)
			}
			for _, m := range got {
				if bytes.Count([]byte(m), []byte("\n")) != strings.Count(m, "\r\n") || strings.Count(m, "\r") != strings.Count(m,
					"\r\n") {
					t.Errorf("%q: a message with a CR or an LF that stands alone was taken: %q", end, m)
				}
			}
			// "\r\r\n.\r\n" contains a real end of a message, so the server executes the text after it as commands. The
			// message before it is refused because of the lone CR.
			if alone := strings.ContainsAny(strings.ReplaceAll(end, "\r\n", ""), "\r\n"); alone && len(got) != 0 &&
				end != "\r\r\n.\r\n" {
				t.Errorf("%q was taken (chunked %v): %q", end, chunked, got)
			}
		}
	}
}

func TestLimitsOfConnections(t *testing.T) {
	addr := serve(t, smtpserver.Config{MaxConnections: 3, MaxPerAddr: 2}, &handler{})
	a, b := dial(t, addr), dial(t, addr)
	a.ask("", "220")
	b.ask("", "220")
	c := dial(t, addr)
	c.ask("", "421 4.7.0")
	c.closed()
	b.ask("QUIT\r\n", "221")
	b.closed()
	await(t, "room for another connection", func() bool {
		d := dial(t, addr)
		defer d.nc.Close()
		return strings.HasPrefix(d.hear(), "220")
	})

}

func TestProxyProtocol(t *testing.T) {
	h := &handler{}
	addr := serve(t, smtpserver.Config{MaxPerAddr: 1, ProxyFrom: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, h)
	v2 := "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + "\xc6\x33\x64\x07" + "\xcb\x00\x71\x01" + "\x1f\x90\x00\x19"
	for header, want := range map[string]string{
		"PROXY TCP4 192.0.2.7 203.0.113.1 4711 25\r\n":   "192.0.2.7:4711",
		"PROXY TCP6 2001:db8::7 2001:db8::1 4711 25\r\n": "[2001:db8::7]:4711",
		v2: "198.51.100.7:8080",
	} {
		c := dial(t, addr)
		c.ask(header+"HELO a.test\r\n", "220", "250")
		h.mu.Lock()
		got := h.peers[len(h.peers)-1].Addr.String()
		h.mu.Unlock()
		if got != want {
			t.Errorf("client %s, want %s", got, want)
		}
	}
	// If a proxy sends no PROXY header, the client receives no reply.
	c := dial(t, addr)
	io.WriteString(c.nc, "HELO a.test\r\n")
	if text, _ := io.ReadAll(c.in); len(text) != 0 {
		t.Errorf("heard %q without a PROXY header", text)
	}
	// If the peer is not a trusted proxy, the PROXY header is treated as an invalid command.
	c = dial(t, serve(t, smtpserver.Config{ProxyFrom: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}, h))
	c.ask("PROXY TCP4 192.0.2.7 203.0.113.1 4711 25\r\n", "220", "500")
}

func TestTimeouts(t *testing.T) {
	h := &handler{}
	short := 500 * time.Millisecond
	addr := serve(t, smtpserver.Config{Timeouts: smtpserver.Timeouts{Command: short}}, h)
	c := dial(t, addr)
	c.ask("HELO a.", "220", "421 4.4.2")
	c.closed()

	// The server interrupts a message that arrives too slowly in total, even if each part arrives in time.
	addr = serve(t, smtpserver.Config{Timeouts: smtpserver.Timeouts{Message: short, Block: time.Minute}}, h)
	c = dial(t, addr)
	c.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "220", "250", "250", "250", "354")
	c.ask("x\r\n", "421 4.4.2")
	c.closed()

	// If a client does not send a message in time, the server ends its connection, even if the client sends other
	// commands.
	addr = serve(t, smtpserver.Config{Timeouts: smtpserver.Timeouts{Idle: short}}, h)
	c = dial(t, addr)
	c.ask("HELO a.test\r\n", "220", "250", "421 4.4.2")
	c.closed()

	addr = serve(t, smtpserver.Config{Implicit: true, TLS: &tls.Config{}, Timeouts: smtpserver.Timeouts{Handshake: short}},
		h)
	dial(t, addr).closed()
	h.wait(t)
	if got := h.messages(); len(got) > 0 {
		t.Errorf("taken: %q", got)
	}
}

func TestEnding(t *testing.T) {
	h := &handler{hold: make(chan struct{})}
	addr, stop := start(t, smtpserver.Config{Hostname: "mx.test"}, h)
	idle, busy := dial(t, addr), dial(t, addr)
	idle.ask("HELO a.test\r\n", "220", "250")
	busy.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "220", "250", "250", "250", "354")
	ended := make(chan struct{})
	go func() {
		stop()
		close(ended)
	}()
	idle.ask("", "421 4.3.2")
	idle.closed()
	if _, err := net.Dial("tcp", addr); err == nil {
		t.Error("the listener still takes connections")
	}
	close(h.hold)
	busy.ask("x\r\n.\r\nNOOP\r\n", "250 2.0.0 Taken as 1", "421 4.3.2")
	busy.closed()
	<-ended
}

func TestGraceEnds(t *testing.T) {
	h := &handler{hold: make(chan struct{})}
	addr, stop := start(t, smtpserver.Config{Grace: time.Millisecond}, h)
	c := dial(t, addr)
	c.ask("HELO a.test\r\nMAIL FROM:<a@a.test>\r\nRCPT TO:<b@b.test>\r\nDATA\r\n", "220", "250", "250", "250", "354")
	stop()
	if text, _ := io.ReadAll(c.in); bytes.HasPrefix(text, []byte("250")) {
		t.Errorf("a message cut off was answered %q", text)
	}
	if h.sessions() != 0 || len(h.messages()) != 0 {
		t.Errorf("%d sessions are open, %q taken", h.sessions(), h.messages())
	}
}

// TestClients sends messages with independent SMTP client implementations, over STARTTLS and over implicit TLS.
func TestClients(t *testing.T) {
	ca := smtptest.NewCA(t)
	h := &handler{}
	server := &tls.Config{Certificates: []tls.Certificate{ca.Certificate("127.0.0.1")}}
	trust := &tls.Config{RootCAs: ca.Pool(), ServerName: "127.0.0.1"}
	startTLS := serve(t, smtpserver.Config{TLS: server, Auth: smtpserver.AuthOverTLS}, h)
	implicit := serve(t, smtpserver.Config{TLS: server, Auth: smtpserver.AuthOverTLS, Implicit: true}, h)
	text := "Subject: x\r\n\r\n.dot\r\n" + strings.Repeat(strings.Repeat("x", 70)+"\r\n", 3000)

	c, err := netsmtp.Dial(startTLS)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.StartTLS(trust); err != nil {
		t.Fatal(err)
	}
	if err := c.Auth(netsmtp.PlainAuth("", "postrider", "secret", "127.0.0.1")); err != nil {
		t.Fatal(err)
	}
	send := func(mail func(string) error, rcpt func(string) error, data func() (io.WriteCloser, error)) {
		t.Helper()
		w, err := io.WriteCloser(nil), errors.Join(mail("a@a.test"), rcpt("b@b.test"))
		if err == nil {
			w, err = data()
		}
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		if err = errors.Join(err, w.Close()); err != nil {
			t.Error(err)
		}
	}
	send(c.Mail, c.Rcpt, c.Data)
	if err := c.Quit(); err != nil {
		t.Error(err)
	}
	for _, auth := range []sasl.Client{sasl.NewLoginClient("postrider", "secret"), sasl.NewPlainClient("", "postrider",
		"secret")} {
		c, err := smtp.DialTLS(implicit, trust)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Auth(auth); err != nil {
			t.Fatal(err)
		}
		send(func(from string) error { return c.Mail(from, &smtp.MailOptions{Size: int64(len(text)), UTF8: true}) },
			func(to string) error { return c.Rcpt(to, nil) },
			func() (io.WriteCloser, error) { w, err := c.Data(); return w, err })
		if err := c.Quit(); err != nil {
			t.Error(err)
		}
	}
	got := h.messages()
	if len(got) != 3 || got[0] != text || got[1] != text || got[2] != text {
		t.Errorf("%d messages were taken, or they differ from what was sent", len(got))
	}
}

// TestIdleConnectionsCostLittle measures the memory used by 500 connections that are idle after EHLO. The measurement
// includes the client side of the connections.
func TestIdleConnectionsCostLittle(t *testing.T) {
	const n, most = 500, 40 << 10
	addr := serve(t, smtpserver.Config{}, &handler{})
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	conns := make([]net.Conn, n)
	buf := make([]byte, 4096)
	for i := range conns {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		nc.SetDeadline(time.Now().Add(patience))
		nc.Read(buf)
		io.WriteString(nc, "EHLO a.test\r\n")
		nc.Read(buf)
		conns[i] = nc
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	each := int64(after.HeapInuse+after.StackInuse-before.HeapInuse-before.StackInuse) / n
	t.Logf("%d bytes for each idle connection, the client's side included", each)
	if each > most {
		t.Errorf("an idle connection costs %d bytes, more than %d", each, most)
	}
}
