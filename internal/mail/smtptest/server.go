package smtptest

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Config configures a Server. With the zero Config, a Server accepts everything and does not offer TLS. The functions
// in Config are called from the goroutines that serve the connections. Each function returns a reply line such as "550
// 5.1.1 no such user"; if the line is empty, the server replies as usual.
type Config struct {
	TLS      *tls.Config       // used for STARTTLS or, if Implicit is set, from the first byte
	Implicit bool              //
	Users    map[string]string // passwords by user name; if not empty, AUTH PLAIN must precede MAIL
	MaxSize  int64             // maximum size of a message, in bytes; 0 means no limit
	UTF8     bool              // offers SMTPUTF8
	Domain   string            // the server's name; empty is "mx.test"

	MaxRecipients int // of a message, announced in LIMITS (RFC 9422); 0 means no limit

	Greet func() string                // a reply that replaces the greeting and ends the connection
	Mail  func(from string) string     // the reply to MAIL
	Rcpt  func(from, to string) string // the reply to RCPT
	Data  func(Message) string         // the reply to the message; a refused message is not stored
}

// Message is a message received by a Server.
type Message struct {
	From string
	To   []string
	Data []byte // the message without stuffed dots
	TLS  bool
	User string // the authenticated user
	UTF8 bool
	Body string // "8BITMIME", or another BODY parameter of MAIL
}

// Server is a mail exchanger for tests, on 127.0.0.1.
type Server struct {
	Addr string

	t      testing.TB
	config Config
	server *smtp.Server
	greet  *greeter
	done   sync.WaitGroup

	mu          sync.Mutex
	open        map[net.Conn]bool
	messages    []Message
	connections int
	arrived     chan struct{} // closed and replaced whenever a message arrives
}

// NewServer starts a Server that stops at the end of the test.
func NewServer(t testing.TB, config Config) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	s := &Server{Addr: listener.Addr().String(), t: t, config: config, open: map[net.Conn]bool{},
		arrived: make(chan struct{})}
	s.server = smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) {
		return &session{s: s, conn: c}, nil
	}))
	s.server.Domain = config.Domain
	if s.server.Domain == "" {
		s.server.Domain = "mx.test"
	}
	s.server.AllowInsecureAuth = true
	s.server.EnableSMTPUTF8 = config.UTF8
	s.server.MaxMessageBytes = config.MaxSize
	s.server.MaxRecipients = config.MaxRecipients
	s.server.ErrorLog = log.New(io.Discard, "", 0) // otherwise the library logs every connection that a test closes
	s.greet = &greeter{Listener: listener, s: s}
	listener = s.greet
	if config.Implicit {
		listener = tls.NewListener(listener, config.TLS)
	} else {
		s.server.TLSConfig = config.TLS
	}
	s.done.Go(func() { s.server.Serve(listener) })
	t.Cleanup(s.Close)
	return s
}

// Close closes all connections and stops the server. Only the sockets are closed, so that the sessions end on their
// own; smtp.Server.Close would access running sessions without holding their lock.
func (s *Server) Close() {
	s.greet.Close()
	s.done.Wait() // from here on, the server accepts no more connections
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
	clear(s.open)
}

// Messages returns the messages received so far.
func (s *Server) Messages() []Message {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.messages)
}

// Connections returns the number of accepted connections.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.connections
}

// Wait waits until n messages have arrived and returns all messages received so far. If this takes more than ten
// seconds, Wait fails the test.
func (s *Server) Wait(n int) []Message {
	s.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		s.mu.Lock()
		messages, arrived := slices.Clone(s.messages), s.arrived
		s.mu.Unlock()
		if len(messages) >= n {
			return messages
		}
		select {
		case <-arrived:
		case <-deadline:
			s.t.Fatalf("%d messages arrived, not %d", len(messages), n)
		}
	}
}

// greeter calls Config.Greet for each connection before the server accepts it.
type greeter struct {
	net.Listener
	s *Server
}

func (g *greeter) Accept() (net.Conn, error) {
	for {
		nc, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		g.s.mu.Lock()
		g.s.connections++
		g.s.mu.Unlock()
		if g.s.config.Greet != nil {
			if reply := g.s.config.Greet(); reply != "" {
				io.WriteString(nc, reply+"\r\n")
				nc.Close()
				continue
			}
		}
		g.s.mu.Lock()
		g.s.open[nc] = true
		g.s.mu.Unlock()
		return &conn{Conn: nc, s: g.s}, nil
	}
}

// conn is an accepted connection that Server.Close can close.
type conn struct {
	net.Conn
	s *Server
}

func (c *conn) Close() error {
	c.s.mu.Lock()
	delete(c.s.open, c.Conn)
	c.s.mu.Unlock()
	return c.Conn.Close()
}

// session is one connection to a Server.
type session struct {
	s       *Server
	conn    *smtp.Conn
	user    string
	message Message
}

// AuthMechanisms implements smtp.AuthSession.
func (c *session) AuthMechanisms() []string {
	if len(c.s.config.Users) == 0 {
		return nil
	}
	return []string{sasl.Plain}
}

// Auth implements smtp.AuthSession.
func (c *session) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		if want, ok := c.s.config.Users[user]; !ok || want != password {
			return smtp.ErrAuthFailed
		}
		c.user = user
		return nil
	}), nil
}

// Mail implements smtp.Session.
func (c *session) Mail(from string, o *smtp.MailOptions) error {
	if len(c.s.config.Users) > 0 && c.user == "" {
		return smtp.ErrAuthRequired
	}
	_, secure := c.conn.TLSConnectionState()
	c.message = Message{From: from, TLS: secure, User: c.user, UTF8: o.UTF8, Body: string(o.Body)}
	if c.s.config.Mail != nil {
		return refusal(c.s.config.Mail(from))
	}
	return nil
}

// Rcpt implements smtp.Session.
func (c *session) Rcpt(to string, _ *smtp.RcptOptions) error {
	if c.s.config.Rcpt != nil {
		if err := refusal(c.s.config.Rcpt(c.message.From, to)); err != nil {
			return err
		}
	}
	c.message.To = append(c.message.To, to)
	return nil
}

// Data implements smtp.Session.
func (c *session) Data(r io.Reader) error {
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		return err
	}
	m := c.message
	m.Data = b.Bytes()
	if c.s.config.Data != nil {
		if err := refusal(c.s.config.Data(m)); err != nil {
			return err
		}
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.messages = append(c.s.messages, m)
	close(c.s.arrived)
	c.s.arrived = make(chan struct{})
	return nil
}

// Reset implements smtp.Session.
func (c *session) Reset() { c.message = Message{} }

// Logout implements smtp.Session.
func (c *session) Logout() error { return nil }

// refusal converts a reply such as "550 5.1.1 text" to an error for which the library sends that reply.
func refusal(reply string) error {
	if reply == "" {
		return nil
	}
	first, text, _ := strings.Cut(reply, " ")
	code, err := strconv.Atoi(first)
	if err != nil {
		return fmt.Errorf("smtptest: %q is not a reply: %w", reply, err)
	}
	if code/100 == 2 {
		return errors.New("smtptest: an empty reply accepts")
	}
	e := &smtp.SMTPError{Code: code, EnhancedCode: smtp.NoEnhancedCode, Message: text}
	var enhanced smtp.EnhancedCode
	if n, _ := fmt.Sscanf(text, "%d.%d.%d", &enhanced[0], &enhanced[1], &enhanced[2]); n == 3 {
		e.EnhancedCode = enhanced
		_, e.Message, _ = strings.Cut(text, " ")
	}
	return e
}
