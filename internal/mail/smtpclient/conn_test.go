package smtpclient_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

var (
	letter = []byte("From: a@client.example\r\nSubject: hello\r\n\r\nhello\r\n..two dots\r\n.\r\nend\r\n")
	known  = smtpclient.Envelope{From: "a@client.example", To: []string{"b@mx.test"}}
)

// TestServer runs complete SMTP sessions with an independent server implementation.
func TestServer(t *testing.T) {
	t.Parallel()
	ca, stranger := smtptest.NewCA(t), smtptest.NewCA(t)
	users := map[string]string{"user": "secret"}
	relay := smtpclient.Options{Username: "user", Password: "secret"}
	tests := []struct {
		name    string
		server  smtptest.Config
		options smtpclient.Options
		mode    smtpclient.TLSMode
		dial    string // the error expected from Dial
		tls     bool   // whether the connection uses TLS
		proven  bool   // whether the certificate is verified
	}{
		{name: "plain host, opportunistic", mode: opportunistic},
		{name: "plain host, TLS required", mode: required, dial: "tls temporary: no TLS"},
		{
			name: "good certificate, opportunistic", mode: opportunistic, tls: true, proven: true,
			server: smtptest.Config{TLS: ca.ServerTLS("127.0.0.1")},
		},
		{
			name: "good certificate, required", mode: required, tls: true, proven: true,
			server: smtptest.Config{TLS: ca.ServerTLS("127.0.0.1")},
		},
		{
			name: "good certificate, TLS not wanted", mode: plain,
			server: smtptest.Config{TLS: ca.ServerTLS("127.0.0.1")},
		},
		{
			name: "server name differs from the address", mode: required, tls: true, proven: true,
			server:  smtptest.Config{TLS: ca.ServerTLS("mx.test")},
			options: smtpclient.Options{ServerName: "mx.test"},
		},
		{
			name: "wrong name, opportunistic", mode: opportunistic, tls: true,
			server: smtptest.Config{TLS: ca.ServerTLS("other.test")},
		},
		{
			name: "wrong name, required", mode: required, dial: "tls temporary: handshake",
			server: smtptest.Config{TLS: ca.ServerTLS("other.test")},
		},
		{
			name: "unknown authority, opportunistic", mode: opportunistic, tls: true,
			server: smtptest.Config{TLS: stranger.ServerTLS("127.0.0.1")},
		},
		{
			name: "unknown authority, required", mode: required, dial: "tls temporary: handshake",
			server: smtptest.Config{TLS: stranger.ServerTLS("127.0.0.1")},
		},
		{
			name: "no common version", mode: opportunistic, dial: "tls temporary plain: handshake",
			server: smtptest.Config{TLS: &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return nil, errors.New("no")
			}}},
		},
		{
			name: "implicit TLS", mode: smtpclient.TLSImplicit, tls: true, proven: true,
			server: smtptest.Config{TLS: ca.ServerTLS("127.0.0.1"), Implicit: true},
		},
		{
			name: "implicit TLS, unknown authority", mode: smtpclient.TLSImplicit, dial: "tls temporary: handshake",
			server: smtptest.Config{TLS: stranger.ServerTLS("127.0.0.1"), Implicit: true},
		},
		{
			name: "implicit TLS with a plain host", mode: smtpclient.TLSImplicit, dial: "tls temporary: handshake",
		},
		{
			name: "password over TLS", mode: required, tls: true, proven: true, options: relay,
			server: smtptest.Config{TLS: ca.ServerTLS("127.0.0.1"), Users: users},
		},
		{
			name: "password on this machine", mode: plain, options: relay, server: smtptest.Config{Users: users},
		},
		{
			name: "wrong password", mode: plain, dial: "auth 535", server: smtptest.Config{Users: users},
			options: smtpclient.Options{Username: "user", Password: "wrong"},
		},
		{
			name: "refused at the door", dial: "greeting 554",
			server: smtptest.Config{Greet: func() string { return "554 5.7.1 blocked" }},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			server := smtptest.NewServer(t, test.server)
			test.options.TLS, test.options.RootCAs = test.mode, ca.Pool()
			c, err := smtpclient.Dial(t.Context(), server.Addr, test.options)
			check(t, "Dial", err, test.dial)
			if err != nil {
				return
			}
			defer c.Close()
			if state := c.TLSState(); state.On() != test.tls || state.Verified != test.proven || state.Verified != (state.On() &&
				state.Problem == "") {
				t.Errorf("TLSState() = %+v", state)
			}
			for range 2 {
				deliver(t, c, server, test.tls, test.options.Username)
			}
			if n := server.Connections(); n != 1 || c.Messages() != 2 {
				t.Errorf("%d connections, %d messages", n, c.Messages())
			}
		})
	}
}

// deliver sends a message and checks what the server received.
func deliver(t *testing.T, c *smtpclient.Conn, server *smtptest.Server, secure bool, user string) {
	t.Helper()
	before := len(server.Messages())
	res, err := c.Send(t.Context(), known, letter[:10], letter[10:42], nil, letter[42:])
	if err != nil || !res.Recipient(0).Positive() {
		t.Fatalf("Send: %+v, %v\n%s", res, err, c.Transcript())
	}
	want := smtptest.Message{From: known.From, To: known.To, Data: letter, TLS: secure, User: user}
	if diff := cmp.Diff([]smtptest.Message{want}, server.Messages()[before:]); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
}

func TestRecipientsAreJudgedOneByOne(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
		switch to {
		case "gone@mx.test":
			return "550 5.1.1 no such user"
		case "full@mx.test":
			return "452 4.2.2 over quota"
		}
		return ""
	}})
	c := dial(t, server.Addr, smtpclient.Options{})
	env := smtpclient.Envelope{From: "a@client.example", To: []string{"gone@mx.test", "b@mx.test", "full@mx.test",
		"δ@mx.test"}}
	res, err := c.Send(t.Context(), env, letter)
	if err != nil {
		t.Fatal(err)
	}
	want := []smtpclient.Reply{
		{Code: 550, Enhanced: "5.1.1", Text: "no such user"},
		{Code: 250, Enhanced: "2.0.0"},
		{Code: 452, Enhanced: "4.2.2", Text: "over quota"},
		{Code: 550, Enhanced: "5.6.7", Local: true},
	}
	for i, w := range want {
		got := res.Recipient(i)
		if w.Text == "" {
			got.Text = ""
		}
		if diff := cmp.Diff(w, got); diff != "" {
			t.Errorf("recipient %d (-want +got):\n%s", i, diff)
		}
	}
	if got := server.Wait(1); len(got) != 1 || !cmp.Equal(got[0].To, []string{"b@mx.test"}) {
		t.Errorf("received %+v", got)
	}
}

// TestManyRecipients sends a message to more recipients than fit in one write.
func TestManyRecipients(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{Rcpt: func(_, to string) string {
		if strings.HasPrefix(to, "7") {
			return "550 5.1.1 no"
		}
		return ""
	}})
	c := dial(t, server.Addr, smtpclient.Options{})
	env := smtpclient.Envelope{From: "a@client.example"}
	var taken []string
	for i := range 350 {
		to := string(rune('0'+i%10)) + "." + strings.Repeat("x", i/10+1) + "@mx.test"
		env.To = append(env.To, to)
		if i%10 != 7 {
			taken = append(taken, to)
		}
	}
	res, err := c.Send(t.Context(), env, letter)
	if err != nil {
		t.Fatal(err)
	}
	for i := range env.To {
		if r := res.Recipient(i); r.Positive() == (i%10 == 7) {
			t.Errorf("%s: %v", env.To[i], r)
		}
	}
	if diff := cmp.Diff(taken, server.Wait(1)[0].To); diff != "" {
		t.Errorf("accepted (-want +got):\n%s", diff)
	}
	if text := c.Transcript(); len(text) > 16<<10 || !strings.Contains(text, "lines left out") ||
		!strings.Contains(text, "bytes)") {
		t.Errorf("the transcript has %d bytes, or lacks its middle or its end:\n%s", len(text), text)
	}
}

func TestExtensions(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	server := smtptest.NewServer(t, smtptest.Config{
		TLS: ca.ServerTLS("127.0.0.1"), UTF8: true, MaxSize: 12345, Users: map[string]string{"a": "b"},
	})
	c := dial(t, server.Addr, smtpclient.Options{TLS: smtpclient.TLSNone})
	want := smtpclient.Extensions{
		Pipelining: true, EightBitMIME: true, SMTPUTF8: true, EnhancedCodes: true, StartTLS: true,
		Size: 12345, Auth: []string{"PLAIN"},
	}
	if diff := cmp.Diff(want, c.Extensions()); diff != "" {
		t.Errorf("Extensions() (-want +got):\n%s", diff)
	}
}

func TestPasswordStaysAtHome(t *testing.T) {
	t.Parallel()
	host := smtptest.Script(t, "S: 220 mx.test\nC: EHLO localhost\nS: 250-mx.test\nS: 250 AUTH PLAIN\n(stall)\n")
	o := smtpclient.Options{Username: "user", Password: "secret", Dial: func(ctx context.Context, network,
		addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		return elsewhere{nc}, err
	}}
	_, err := smtpclient.Dial(t.Context(), host.Addr, o)
	if !errors.Is(err, smtpclient.ErrAuthPlain) {
		t.Errorf("Dial: %v", err)
	}
}

// elsewhere is a connection whose remote address belongs to another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 25} }

func TestCancel(t *testing.T) {
	t.Parallel()
	t.Run("while dialling", func(t *testing.T) {
		t.Parallel()
		host := smtptest.Script(t, "(stall)\n")
		ctx, cancel := context.WithCancel(t.Context())
		o := smtpclient.Options{Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			time.AfterFunc(10*time.Millisecond, cancel)
			return nc, err
		}}
		_, err := smtpclient.Dial(ctx, host.Addr, o)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Dial: %v", err)
		}
	})
	t.Run("while the host thinks", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		server := smtptest.NewServer(t, smtptest.Config{Data: func(smtptest.Message) string {
			cancel()
			<-t.Context().Done()
			return ""
		}})
		c := dial(t, server.Addr, smtpclient.Options{})
		_, err := c.Send(ctx, known, letter)
		e, ok := errors.AsType[*smtpclient.Error](err)
		if !ok || !e.Sent || !errors.Is(err, context.Canceled) || c.Usable() {
			t.Errorf("Send: %+v, usable: %v", err, c.Usable())
		}
	})
	t.Run("deadline of the context", func(t *testing.T) {
		t.Parallel()
		host := smtptest.Script(t, "(stall)\n")
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := smtpclient.Dial(ctx, host.Addr, smtpclient.Options{})
		check(t, "Dial", err, "greeting temporary: timeout")
	})
	t.Run("after the message", func(t *testing.T) {
		t.Parallel()
		server := smtptest.NewServer(t, smtptest.Config{})
		c := dial(t, server.Addr, smtpclient.Options{})
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := c.Send(ctx, known, letter); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		if !c.Usable() {
			t.Error("the connection is lost")
		}
	})
}

// TestCommit makes Commit fail right before the final dot, while the host is waiting for that dot.
func TestCommit(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{})
	for _, size := range []int{0, 10_000, 1 << 20} {
		c := dial(t, server.Addr, smtpclient.Options{})
		no := errors.New("not ours")
		env := known
		env.Commit = func() error { return no }
		_, err := c.Send(t.Context(), env, letter, bytes.Repeat([]byte("a line\r\n"), size/8))
		e, ok := errors.AsType[*smtpclient.Error](err)
		if !ok || e.Sent || e.Stage != smtpclient.StageBody || !errors.Is(err, no) || c.Usable() {
			t.Errorf("Send: %+v, usable: %v", err, c.Usable())
		}
		c.Close()
	}
	c := dial(t, server.Addr, smtpclient.Options{})
	env := known
	asked := 0
	env.Commit = func() error { asked++; return nil }
	if _, err := c.Send(t.Context(), env, letter); err != nil || asked != 1 {
		t.Errorf("Send: %v, asked %d times", err, asked)
	}
	if got := len(server.Messages()); got != 1 {
		t.Errorf("the host has %d messages", got)
	}
}

func TestDialFails(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := listener.Addr().String()
	listener.Close()
	for _, test := range []struct {
		name, addr, hello string
		stage             smtpclient.Stage
		temporary         bool
	}{
		{"nobody listens", nobody, "", smtpclient.StageConnect, true},
		{"no port", "127.0.0.1", "", smtpclient.StageConnect, false},
		{"our name holds a line", nobody, "a\r\nMAIL FROM:<>", smtpclient.StageHello, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := smtpclient.Dial(t.Context(), test.addr, smtpclient.Options{Hello: test.hello})
			e, ok := errors.AsType[*smtpclient.Error](err)
			if !ok || e.Stage != test.stage || e.Temporary != test.temporary || e.Sent {
				t.Errorf("Dial: %+v", err)
			}
		})
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	host := smtptest.ScriptFile(t, "reset")
	c := dial(t, host.Addr, smtpclient.Options{Hello: "client.example"})
	if err := c.Reset(t.Context()); err != nil || !c.Usable() {
		t.Errorf("Reset: %v", err)
	}
	check(t, "Reset", c.Reset(t.Context()), "mail temporary stale 500")
	check(t, "Reset", c.Reset(t.Context()), "mail temporary stale: hung up")
	_, err := c.Send(t.Context(), known, letter)
	if !errors.Is(err, smtpclient.ErrUnusable) {
		t.Errorf("Send: %v", err)
	}
}

// TestTranscript checks a complete transcript, except for the times.
func TestTranscript(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{Users: map[string]string{"user": "secret"}})
	c := dial(t, server.Addr, smtpclient.Options{Hello: "client.example", Username: "user", Password: "secret"})
	for range 2 {
		if _, err := c.Send(t.Context(), known, letter); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for line := range strings.Lines(c.Transcript()) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
		got = append(got, line)
	}
	want := []string{
		"*: connected to " + server.Addr,
		"S: 220 mx.test ESMTP Service Ready",
		"C: EHLO client.example",
		"S: 250-Hello client.example",
		"S: 250-PIPELINING",
		"S: 250-8BITMIME",
		"S: 250-ENHANCEDSTATUSCODES",
		"S: 250-CHUNKING",
		"S: 250-AUTH PLAIN",
		"S: 250 SIZE",
		"C: AUTH PLAIN (credentials)",
		"S: 235 2.0.0 Authentication succeeded",
		"*: message 2 on this connection",
		"C: MAIL FROM:<a@client.example>",
		"C: RCPT TO:<b@mx.test>",
		"C: DATA",
		"S: 250 2.0.0 Roger, accepting mail from <a@client.example>",
		"S: 250 2.0.0 I'll make sure <b@mx.test> gets this",
		"S: 354 Go ahead. End your data with <CR><LF>.<CR><LF>",
		fmt.Sprintf("C: (message of %d bytes)", len(letter)),
		"S: 250 2.0.0 OK: queued",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Transcript() (-want +got):\n%s", diff)
	}
}

// TestSink sends messages, including smuggling attempts, and checks what the hook of the sink receives.
func TestSink(t *testing.T) {
	t.Parallel()
	got := make(chan smtptest.Message, 1)
	sink, err := smtpsink.Config{OnMessage: func(from string, to []string, data []byte) {
		got <- smtptest.Message{From: from, To: to, Data: data}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sink.Close() })
	c := dial(t, sink.Addr(), smtpclient.Options{})
	for _, test := range []struct{ name, msg, want string }{
		{"as it is", string(letter), string(letter)},
		{"no final line end", "A: b\r\n\r\nc", "A: b\r\n\r\nc\r\n"},
		{"nothing", "", ""},
		{"a dot", ".", ".\r\n"},
		{"large", strings.Repeat(".line\r\n", 100_000), strings.Repeat(".line\r\n", 100_000)},
		{"lone line feeds", "A: b\n\n.\nc\n", "A: b\r\n\r\n.\r\nc\r\n"},
		{"smuggling", "A: b\r\n\r\nc\n.\r\nMAIL FROM:<x@y.example>\r\n", "A: b\r\n\r\nc\r\n.\r\nMAIL FROM:<x@y.example>\r\n"},
		{"a doubled carriage return is no empty line", "A: b\r\r\nC: d\r\n", "A: b \r\nC: d\r\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			before := sink.Count()
			res, err := c.Send(t.Context(), known, []byte(test.msg))
			if err != nil || !res.Final.Positive() {
				t.Fatalf("Send: %+v, %v", res, err)
			}
			want := smtptest.Message{From: known.From, To: known.To, Data: []byte(test.want)}
			if diff := cmp.Diff(want, <-got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("the sink has (-want +got):\n%s", diff)
			}
			if n := sink.Count() - before; n != 1 {
				t.Errorf("the sink counted %d", n)
			}
		})
	}
}

// TestSlowLink: each block of a long message has the whole timeout, so that a message may take longer than the timeout.
func TestSlowLink(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{})
	var link *blockLink
	o := smtpclient.Options{
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			nc, err := new(net.Dialer).DialContext(ctx, network, addr)
			link = &blockLink{Conn: nc}
			return link, err
		},
	}
	c := dial(t, server.Addr, o)
	body := bytes.Repeat([]byte("0123456789abcdef0123456789abcdef\r\n"), 20_000)
	if res, err := c.Send(t.Context(), known, body); err != nil || !res.Final.Positive() {
		t.Errorf("Send: %+v, %v", res, err)
	}
	if link.blocks < 5 || link.old > 0 {
		t.Errorf("%d of %d blocks were sent with the deadline of an earlier block", link.old, link.blocks)
	}
}

// blockLink counts the large writes, and those before which no new deadline was set.
type blockLink struct {
	net.Conn
	armed       bool
	blocks, old int
}

func (l *blockLink) SetDeadline(at time.Time) error {
	l.armed = true
	return l.Conn.SetDeadline(at)
}

func (l *blockLink) Write(p []byte) (int, error) {
	if len(p) > 1000 {
		l.blocks++
		if !l.armed {
			l.old++
		}
	}
	l.armed = false
	return l.Conn.Write(p)
}

func dial(t *testing.T, addr string, o smtpclient.Options) *smtpclient.Conn {
	t.Helper()
	c, err := smtpclient.Dial(t.Context(), addr, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// If a host stops reading commands, the client gives up after one timeout, because it does not wait for a reply after a
// timed-out write.
func TestHostReadsNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		go func() {
			in := bufio.NewReader(far)
			io.WriteString(far, "220 mx.test\r\n")
			in.ReadString('\n')
			io.WriteString(far, "250-mx.test\r\n250 PIPELINING\r\n")
		}()
		c, err := smtpclient.Dial(t.Context(), "mx.test:25", smtpclient.Options{TLS: plain,
			Timeouts: smtpclient.Timeouts{Command: time.Minute},
			Dial:     func(context.Context, string, string) (net.Conn, error) { return near, nil }})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		start := time.Now()
		_, err = c.Send(t.Context(), known, letter)
		if took := time.Since(start); err == nil || took != time.Minute {
			t.Errorf("%v after %v", err, took)
		}
	})
}
